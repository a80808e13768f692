# SPDX-License-Identifier: MIT OR Apache-2.0
"""The inventory, `hosts.toml`: machines, their roles, interfaces and processors, and how to reach them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROLES = ("injector", "sensor", "receiver", "vm-host")


class InventoryError(Exception):
    """An inventory, a battery or a contender is not what it should be; the text says where."""


@dataclass(frozen=True)
class Ssh:
    """Where a machine's SSH server is, and how it knows us."""

    address: str
    port: int = 22
    user: str = "root"
    #: Private key and list of known hosts; the defaults of the user's own client if empty.
    key: str = ""
    known_hosts: str = ""


@dataclass(frozen=True)
class Host:
    """One machine of the lab."""

    name: str
    roles: tuple[str, ...]
    #: Interface `in` is captured from, `out` is sent through.
    interfaces: dict[str, str] = field(default_factory=dict)
    #: Processor for `sender`, `reader` and `capture`.
    cpus: dict[str, int] = field(default_factory=dict)
    #: None: this machine.
    ssh: Ssh | None = None
    #: Network namespace of this machine, made by the lab.
    namespace: str = ""
    python: str = "python3"
    #: Paths of programs that are not on PATH, such as `ringtap`.
    programs: dict[str, str] = field(default_factory=dict)
    #: Addresses of interfaces, by which clients of services reach them.
    addresses: dict[str, str] = field(default_factory=dict)

    def device(self, which: str) -> str:
        """Name of an interface; raises InventoryError if the inventory lacks it."""
        if which not in self.interfaces:
            raise InventoryError(f"host {self.name}: no interface `{which}` in the inventory")
        return self.interfaces[which]


@dataclass(frozen=True)
class Inventory:
    """All machines."""

    hosts: tuple[Host, ...]

    def role(self, role: str) -> Host:
        """The machine with a role."""
        for host in self.hosts:
            if role in host.roles:
                return host
        raise InventoryError(f"no host has the role {role}")

    @property
    def is_local(self) -> bool:
        """Whether the lab makes the network itself."""
        return any(host.namespace for host in self.hosts)


def local(programs: dict[str, str]) -> Inventory:
    """This machine: injector, sensor and receiver are network namespaces."""
    # Kernel side of the sender and of the capture on one core, readers on the other.
    cpus = {"sender": 0, "reader": 1, "capture": 1}
    places = {
        "injector": {"out": "rt0"},
        "sensor": {"in": "rt1", "out": "rt2"},
        "receiver": {"in": "rt3"},
    }
    addresses = {"injector": {"out": "198.51.100.1"}, "sensor": {"in": "198.51.100.2"}}
    return Inventory(
        tuple(
            Host(role, (role,), interfaces, cpus, namespace=role, programs=programs, addresses=addresses.get(role, {}))
            for role, interfaces in places.items()
        )
    )


def load(path: Path) -> Inventory:
    """Reads `hosts.toml`."""
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InventoryError(f"{path}: {error}") from None
    only_known(found, {"host"}, str(path))
    hosts = tuple(_host(entry, f"{path}: host {number}") for number, entry in enumerate(found.get("host", []), 1))
    names = [host.name for host in hosts]
    if len(set(names)) != len(names) or not names:
        raise InventoryError(f"{path}: needs [[host]] entries with different names, not {names}")
    return Inventory(hosts)


def _host(entry: dict[str, Any], where: str) -> Host:
    known = {"name", "roles", "interfaces", "addresses", "cpus", "ssh", "python", "programs"}
    only_known(entry, known, where)
    for key in ("name", "roles"):
        if key not in entry:
            raise InventoryError(f"{where}: no `{key}`")
    wrong = set(entry["roles"]) - set(ROLES)
    if wrong:
        raise InventoryError(f"{where}: no such role: {', '.join(sorted(wrong))}; there are {', '.join(ROLES)}")
    rest = {key: value for key, value in entry.items() if key not in ("roles", "ssh")}
    try:
        ssh = Ssh(**entry["ssh"]) if "ssh" in entry else None
    except TypeError as error:
        raise InventoryError(f"{where}: ssh: {error}") from None
    return Host(roles=tuple(entry["roles"]), ssh=ssh, **rest)


def only_known(entry: dict[str, Any], known: set[str], where: str) -> None:
    """Raises InventoryError for a key that nobody would read."""
    unknown = sorted(set(entry) - known)
    if unknown:
        raise InventoryError(f"{where}: no such key: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
