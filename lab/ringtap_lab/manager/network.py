# SPDX-License-Identifier: MIT OR Apache-2.0
"""Network of the default inventory: three namespaces, measured links between them, and a management network.

    injector rt0 ── rt1 sensor rt2 ── rt3 receiver
    each `mgmt` ── bridge `mgmt` of the manager

Invariants
- Runs inside the sandbox: the kernel removes namespaces and devices with the manager, however it ends.
- No measured packet crosses the management network.
"""

from __future__ import annotations

import subprocess

from ringtap_lab.manager.inventory import Inventory
from ringtap_lab.manager.sandbox import SandboxError

MANAGER = "192.0.2.1"
ADDRESSES = {"injector": "192.0.2.11", "sensor": "192.0.2.12", "receiver": "192.0.2.13"}
PREFIX = 24
#: Interfaces of the measured links, with the namespaces at their ends.
LINKS = [(("injector", "rt0"), ("sensor", "rt1")), (("sensor", "rt2"), ("receiver", "rt3"))]
# IPv6 announces itself on new devices: packets that nobody sent would be counted.
QUIET = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"


def make(inventory: Inventory) -> None:
    """Makes all of it."""
    wanted = {host.namespace for host in inventory.hosts}
    if wanted != set(ADDRESSES):
        raise SandboxError(f"the lab makes the namespaces {', '.join(ADDRESSES)}, not {', '.join(sorted(wanted))}")
    _run("ip link set lo up", f"{QUIET} -e", "ip link add mgmt type bridge", "ip link set mgmt up",
         f"ip address add {MANAGER}/{PREFIX} dev mgmt")  # fmt: skip
    for name, address in ADDRESSES.items():
        inside = f"ip netns exec {name} "
        _run(
            f"ip netns add {name}",
            f"{inside}{QUIET} -e",
            f"ip link add m-{name} type veth peer name mgmt netns {name}",
            f"ip link set m-{name} master mgmt up",
            f"{inside}ip link set lo up",
            f"{inside}ip address add {address}/{PREFIX} dev mgmt",
            f"{inside}ip link set mgmt up",
        )
    for (left, out), (right, into) in LINKS:
        _run(
            f"ip link add {out} netns {left} type veth peer name {into} netns {right}",
            f"ip netns exec {left} ip link set {out} up",
            f"ip netns exec {right} ip link set {into} up",
            # Without NAPI on the far side a veth drops what is redirected into it.
            f"ip netns exec {right} ethtool -K {into} gro on",
        )
    for host in inventory.hosts:
        for which, address in host.addresses.items():
            _run(f"ip netns exec {host.namespace} ip address add {address}/{PREFIX} dev {host.interfaces[which]}")


def _run(*commands: str) -> None:
    for command in commands:
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SandboxError(f"{command}: {done.stderr.strip()}")
