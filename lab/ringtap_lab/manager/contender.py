# SPDX-License-Identifier: MIT OR Apache-2.0
"""Contenders, senders and services as data: one TOML file each, in `contenders/` or a folder of the user's."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringtap_lab.manager.counts import Counts
from ringtap_lab.manager.inventory import InventoryError, only_known

FOLDER = Path(__file__).resolve().parents[1] / "contenders"
#: Counts that a contender of each kind must have.
REQUIRED: dict[str, set[str]] = {
    "capture": {"delivered"}, "sender": {"sent", "elapsed_ns"}, "forward": set(), "command": set(),
    "service": set(), "beside": set(),
}  # fmt: skip


@dataclass(frozen=True)
class Ready:
    """What shows that a program captures: a line in its output, and `xdp`, `ring`, `pool` or `nothing`."""

    line: str | None = None
    attached: str = "nothing"
    limit_s: float = 15.0


@dataclass(frozen=True)
class Server:
    """A program that readers need, such as a hub, or the one that a service's client talks to."""

    command: str
    ready: Ready
    #: What it prints has the counts, not what a reader prints; such as a collector's.
    counts: bool = False
    #: Name of a thread whose processor time is a figure of its own.
    thread: str = ""


@dataclass(frozen=True)
class Contender:
    """One way to capture, to send, to forward, or to work on a file; a service and its client; or what runs beside."""

    name: str
    command: str
    counts: Counts
    kind: str = "capture"
    ready: Ready = field(default_factory=Ready)
    server: Server | None = None
    #: How to install it, and which programs it needs.
    install: str = ""
    #: Texts of files in the scratch folder, by name; commands before it starts, and after it has ended.
    files: dict[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()
    #: A command after the measurement, whose output counts with that of the program.
    check: str = ""
    #: Its counts of a file may differ from what is in the file.
    approximate: bool = False
    needs: tuple[str, ...] = ()
    note: str = ""
    #: It has read all once it did nothing for so long: longer than its block time-out.
    quiet_s: float = 0.3
    #: Longest that it may read after the last packet, and take to end.
    end_s: float = 30.0
    #: It asks for packets all the time, also when there are none.
    spins: bool = False
    stdin_ends_it: bool = False
    #: Name of the file that it writes into the scratch folder; it must hold every delivered packet.
    writes: str = ""
    #: Name of another file that must be there, such as an index.
    also_writes: str = ""
    #: Whether several of it may read the same traffic.
    many_readers: bool = False
    #: Of what runs beside: a program for each of these users; it is killed again and again after so long.
    users: tuple[str, ...] = ("root",)
    life_s: float = 0.0
    #: It takes the captured device down: what is on its way then reaches nobody.
    cuts_link: bool = False
    #: Its argument for a `load`, which is `{load}` in it.
    load: str = ""
    #: Patterns of further figures, such as times to the reader, or what a service's client says.
    figures: dict[str, str] = field(default_factory=dict)
    #: Command and pattern of its version.
    version: tuple[str, str] = ("", "")
    folder: Path = FOLDER


def load(path: Path) -> Contender:
    """Reads one description."""
    try:
        return _contender(_described(path), path)
    except (OSError, tomllib.TOMLDecodeError, TypeError, KeyError) as error:
        raise InventoryError(f"{path}: {type(error).__name__}: {error}") from None


def _described(path: Path) -> dict[str, Any]:
    """What a file says; what it does not say is as in the file of the same folder that `like` names."""
    found = tomllib.loads(path.read_text())
    like = found.pop("like", "")
    return {**_described(path.parent / f"{like}.toml"), **found} if like else found


def load_all(folders: list[Path]) -> dict[str, Contender]:
    """All descriptions of these folders, by name; a later folder replaces an earlier one's."""
    return {one.name: one for folder in folders for one in map(load, sorted(folder.glob("*.toml")))}


def _contender(found: dict[str, Any], path: Path) -> Contender:
    only_known(found, {one for one in Contender.__dataclass_fields__ if one != "folder"}, str(path))
    terms = dict(found.pop("counts", {}))
    key = terms.pop("json", "")
    counts = Counts({name: (one,) if isinstance(one, str) else tuple(one) for name, one in terms.items()}, key)
    kind = found.get("kind", "capture")
    required = REQUIRED.get(kind)
    if required is None or not required <= set(terms):
        told = "; ".join(f"{name} (counts {', '.join(sorted(each)) or 'nothing'})" for name, each in REQUIRED.items())
        raise InventoryError(f"{path}: kind and counts, at least: {told}")
    if kind == "service" and not found.get("figures"):
        raise InventoryError(f"{path}: a service has figures, which its client says")
    ready = Ready(**found.pop("ready", {}))
    server = found.pop("server", None)
    if server is not None:
        server = Server(**{**server, "ready": Ready(**server.get("ready", {}))})
    for name in ("needs", "version", "setup", "teardown", "users"):
        if name in found:
            found[name] = tuple(found[name])
    return Contender(counts=counts, ready=ready, server=server, folder=path.resolve().parent, **found)
