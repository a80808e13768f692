# SPDX-License-Identifier: MIT OR Apache-2.0
"""Readers in virtual machines, a hub for them, and trials of a rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from ringtap_lab.scenarios import crowd, parse
from ringtap_lab.scenarios.guest import Guest
from ringtap_lab.scenarios.lossless import highest_lossless
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import Tool
from ringtap_lab.scenarios.trial import Traffic, send

TRIAL_SECONDS = 3.0
#: Memory for packets that wait: of a guest's ring, or of the memory that a guest shares with the host.
RING_MIB = 16
#: A guest whose processors are busy no longer than this in half a second has read all.
QUIET_NS = 50_000_000
READER = "ringtap count -q --json --work headers -i"
DEVICE = "host:all"
ATTACH = (
    "{ringtap} vm --folder {scratch}/vm attach --qmp {qmp} --name {name} -g all"
    " --memory {mib}MiB --socket {scratch}/hub.sock"
)


@dataclass
class Lab:
    """The machines, and the hub, which takes all packets from the bridge once it runs."""

    run: Run
    machines: list[Guest]
    result: dict
    stack: ExitStack = field(default_factory=ExitStack)
    #: The hub and the processes of the machines, while they run.
    tools: list[Tool] = field(default_factory=list)

    def start_hub(self) -> None:
        """A hub that takes all packets, and its groups in every machine."""
        hub = self.stack.enter_context(Tool(self.run.programs.fill(crowd.HUB_COMMAND)))
        hub.wait_ready("ringtap: hub of", "xdp")
        self.tools = [hub] + [self.attach(one) for one in self.machines]
        for one in self.machines:
            one.run("ringtap guest >/agent 2>&1 &")
            one.run("until [ -S /run/ringtap/host/all.sock ]; do sleep 0.1; done", 120)

    def attach(self, one: Guest) -> Tool:
        """Plugs the memory into a machine."""
        command = self.run.programs.fill(ATTACH, qmp=one.qmp, name=one.name, mib=RING_MIB)
        tool = self.stack.enter_context(Tool(command))
        tool.wait_ready("attached, for groups", "nothing")
        return tool

    def settle(self) -> None:
        """Waits until no machine has work."""
        for one in self.machines:
            before, end = one.guest_ns(), time.monotonic() + 30
            while time.monotonic() < end:
                time.sleep(0.5)
                now = one.guest_ns()
                if now - before <= QUIET_NS:
                    break
                before = now

    def host_ns(self) -> int:
        """Nanoseconds that the hub, the processes of the machines, and QEMU ran for the machines."""
        return sum(one.cpu_ns() for one in self.tools) + sum(one.host_ns() for one in self.machines)


def start_ringtap(one: Guest, readers: int, text: str = "", device: str = DEVICE) -> None:
    """Starts readers of the host's group, and waits until they read."""
    for number in range(readers):
        one.run(f"{READER} '{device}' {text} >/r{number} & p{number}=$!")
    one.run(
        f"until case \"$(ringtap guest --status 2>&1)\" in *': {readers} reader'*) true ;; *) false ;;"
        " esac; do sleep 0.1; done"
    )


def stop_ringtap(one: Guest, readers: int) -> list[int]:
    """Ends the readers; gives what each received."""
    pids = " ".join(f"$p{number}" for number in range(readers))
    one.run(f"kill -INT {pids}; wait {pids}")
    texts = [one.run(f"cat /r{number}") for number in range(readers)]
    return [parse.ringtap(text).delivered for text in texts]


def start_packet(one: Guest, text: str = "") -> None:
    """Starts a reader of the machine's own network device."""
    one.run(": >/ready")
    one.run(f"packet_reader eth0 {RING_MIB} '{text}' >/r0 2>/ready & p0=$!")
    one.run("until [ -s /ready ]; do sleep 0.1; done")


def stop_packet(one: Guest) -> list[int]:
    """Ends it; gives what it received."""
    return [parse.libpcap_reader(one.run("kill -INT $p0; wait $p0; cat /r0")).delivered]


def trial(lab: Lab, start: Callable, stop: Callable, traffic: Traffic, used: list[Guest]) -> dict:
    """Sends to readers in machines; gives what the worst of them received, and who worked how much."""
    for one in used:
        start(one)
    lab.settle()
    worked, ran, begin = sum(one.guest_ns() for one in used), lab.host_ns(), time.monotonic()
    sent = send(lab.run.programs, traffic)
    lab.settle()
    worked, ran = sum(one.guest_ns() for one in used) - worked, lab.host_ns() - ran
    seconds = time.monotonic() - begin
    received = [count for one in used for count in stop(one)]
    return {
        "offered": sent.packets,
        "received": received,
        "elapsed_ns": sent.elapsed_ns,
        "host_ns_per_packet": ran / sent.packets,
        "guest_ns": worked,
        "measured_seconds": seconds,
    }


def search(lab: Lab, size: int, measure: Callable[[Traffic], dict], hint: float | None) -> dict:
    """The highest lossless rate, with the trial that had it, and the most that ever arrived."""
    best: dict = {}
    most = 0.0

    def probe(rate: str) -> tuple[float, float, bool]:
        nonlocal best, most
        row = measure(Traffic(size, rate, TRIAL_SECONDS))
        seconds = row["elapsed_ns"] / 1e9
        offered, least = row["offered"] / seconds, min(row["received"]) / seconds
        most = max(most, least)
        lossless = set(row["received"]) == {row["offered"]}
        if lossless and offered > best.get("offered", 0) / best.get("seconds", 1):
            best = {**row, "seconds": seconds}
        return offered, least, lossless

    found = highest_lossless(probe, hint)
    return {**(found or {}), "max_pps": most, "trial": best}
