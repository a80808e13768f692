# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `forward`: 64-byte packets from one veth pair to another, by the kernel's bridge and ours.

The sender sends into the first pair; what comes out of the second is counted and dropped by XDP,
which counts what any program forwarded.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import contenders, figures, parse
from ringtap_lab.scenarios.contenders import TASKSET
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import Tool, ToolError
from ringtap_lab.scenarios.trial import Traffic, send

SIZE = 64
#: The second pair: the bridge's end, and the one where packets are counted.
BRIDGED, COUNTED = "rt2", "rt3"
KERNEL, OURS = "kernel bridge", "ringtap bridge"
INLINE, DECIDED = "ringtap bridge, inline", "ringtap bridge, decided flows"
OVERHEAD_SECONDS = 1.5
#: The kernel's bridge says a few things of its own when it begins.
OWN_PACKETS = 16
READY, DECIDING = "bridge of", "ringtap: deciding"


@dataclass(frozen=True)
class Way:
    """One way to forward."""

    name: str
    note: str
    #: Our program's arguments; None for the kernel's bridge.
    arguments: str | None
    #: A program that decides about each packet, beside the bridge.
    reader: str | None = None


WAYS = [
    Way(KERNEL, "`ip link add type bridge`", None),
    Way(OURS, "redirected by XDP", ""),
    Way(INLINE, "another process decides about each packet, on the same core, and passes all",
        "--cpu capture={reader_cpu} --inline ips --socket {scratch}/ips.sock",
        TASKSET + "{ringtap} inline --json -i hub:ips?socket={scratch}/ips.sock"),
    Way(DECIDED, "another process passes each flow at its first packet",
        "--cpu capture={reader_cpu} --inline ips --socket {scratch}/ips.sock",
        TASKSET + "{ringtap} inline --json --pass-after 1 -i hub:ips?socket={scratch}/ips.sock"),
]  # fmt: skip


def seconds(run: Run) -> float:
    """About how long it takes."""
    return len(WAYS) * run.settings.rounds * (run.settings.seconds + OVERHEAD_SECONDS)


def _do(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolError(f"{command}: {done.stderr.strip()}")


@contextmanager
def _second_pair() -> Iterator[None]:
    _do(f"ip link add {BRIDGED} type veth peer name {COUNTED}")
    try:
        for end in (BRIDGED, COUNTED):
            _do(f"ip link set {end} up")
            _do(f"ethtool -K {end} gro on")
        yield
    finally:
        _do(f"ip link delete {BRIDGED}")


@contextmanager
def _kernel_bridge() -> Iterator[None]:
    _do("ip link add rtbr type bridge mcast_snooping 0")
    try:
        for end in (sandbox.CAPTURED, BRIDGED):
            _do(f"ip link set {end} master rtbr")
        _do("ip link set rtbr up")
        yield
    finally:
        _do("ip link delete rtbr")


def run(run: Run) -> dict:
    """By way, every round and the spread."""
    rows: dict[str, list[dict]] = {way.name: [] for way in WAYS}
    with _second_pair():
        for number in range(run.settings.rounds):
            turn = number % len(WAYS)
            for way in WAYS[turn:] + WAYS[:turn]:
                # Only what the floor's contender needs is needed here.
                row = run.attempt(contenders.FLOOR, lambda way=way: _measure(run, way))
                if row is None:
                    continue
                rows[way.name].append({"round": number, **row})
                run.say(
                    f"forward  round {number + 1}/{run.settings.rounds}  {way.name:<24}"
                    f" {row['forwarded_mpps']:7.3f} Mpps of {row['offered_mpps']:.3f}"
                )
    keys = ("offered_mpps", "forwarded_mpps", "loss_percent")
    return {
        way.name: {
            "note": way.note,
            "rounds": rows[way.name],
            "summary": figures.summary(rows[way.name], keys),
        }
        for way in WAYS
    }


def _measure(run: Run, way: Way) -> dict:
    floor = run.programs.fill(contenders.FLOOR.command).replace(sandbox.CAPTURED, COUNTED)
    with Tool(floor, stdin_ends_it=True) as counter:
        counter.wait_ready(contenders.FLOOR.ready, "nothing")
        if way.arguments is None:
            with _kernel_bridge():
                return _traffic(run, counter, None)
        command = f"{{ringtap}} bridge {sandbox.CAPTURED} {BRIDGED} --json --quiet {way.arguments}"
        with Tool(run.programs.fill(command)) as bridge:
            bridge.wait_ready(READY, "nothing")
            if way.reader is None:
                return _traffic(run, counter, bridge.end)
            # It ends with the bridge.
            with Tool(run.programs.fill(way.reader)) as reader:
                reader.wait_ready(DECIDING, "nothing")
                return _traffic(run, counter, bridge.end)


def _traffic(run: Run, counter: Tool, end: Callable[[], str] | None) -> dict:
    sent = send(run.programs, Traffic(SIZE, "max", run.settings.seconds))
    text = end() if end else ""
    forwarded = parse.floor(counter.end()).delivered
    if end is None and 0 < forwarded - sent.packets <= OWN_PACKETS:
        forwarded = sent.packets
    problems = _contradictions(text, sent.packets, forwarded) if end else []
    if forwarded > sent.packets:
        problems.append(f"{forwarded} packets came out, {sent.packets} were sent")
    return {
        "offered": sent.packets,
        "forwarded": forwarded,
        "loss_percent": figures.loss_percent(sent.packets, forwarded),
        "offered_mpps": figures.rate_mpps(sent.packets, sent.elapsed_ns),
        "forwarded_mpps": figures.rate_mpps(forwarded, sent.elapsed_ns),
        "problems": problems,
        "output": text,
    }


def _contradictions(text: str, offered: int, forwarded: int) -> list[str]:
    """What our counters and the counter behind the bridge do not agree on."""
    way = f'"{sandbox.CAPTURED}>{BRIDGED}"'
    lines = [line for line in text.splitlines() if way in line]
    if not lines:
        return ["it printed no counters"]
    counters = parse.last_json(lines[-1], "delivered", "ringtap bridge")
    found = []
    if counters["offered"] != offered:
        found.append(f"it says that it was offered {counters['offered']} packets, not {offered}")
    if counters["delivered"] != forwarded:
        found.append(f"it says that it forwarded {counters['delivered']}, but {forwarded} came out")
    if not counters["balanced"]:
        found.append("its counters do not balance")
    return found


def against_kernel(result: dict, name: str = OURS) -> float | None:
    """Median over the rounds: what we forwarded, divided by what the kernel's bridge did."""
    rows = result.get("forward", {})
    good = [
        [row for row in rows.get(one, {}).get("rounds", []) if not row["problems"]]
        for one in (name, KERNEL)
    ]
    found = figures.ratios(*good, "forwarded_mpps")
    return figures.spread(found)["median"] if found else None


def beside(result: dict) -> str:
    """The figures with an inline reader."""
    ways = [(INLINE, "with an inline reader in another process"), (DECIDED, "once it has decided about the flows")]
    ratios = [(against_kernel(result, name), words) for name, words in ways]
    return ", ".join(f"{ratio:.2f} {words}" for ratio, words in ratios if ratio is not None)
