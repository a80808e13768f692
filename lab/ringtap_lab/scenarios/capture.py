# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `capture`: everybody captures the same traffic at full speed, in turn."""

from __future__ import annotations

from ringtap_lab.manager.battery import OVERHEAD_S, Case
from ringtap_lab.scenarios import figures, turns
from ringtap_lab.scenarios.run import Run

KEYS = (
    "offered_mpps", "delivered_mpps", "loss_percent", "ns_above_floor", "ns_above_floor_offered",
)  # fmt: skip
FLOOR = turns.KNOWN["XDP_DROP floor"]
#: In the order of the table; the floor must be first.
CONTENDERS = turns.named(
    FLOOR.name, "tap exclusive", "xdp", "DPDK testpmd", "tap pass", "packet", "tcpdump", "dumpcap /dev/null",
    "dumpcap file", "netsniff-ng",
)  # fmt: skip


def seconds(run: Run) -> float:
    """About how long it takes."""
    there = [one for one in run.chosen(CONTENDERS) if not turns.missing(run, one)]
    return (run.settings.seconds + OVERHEAD_S) * len(run.settings.sizes) * run.settings.rounds * len(there)


def run(run: Run) -> dict:
    """Measures all sizes; gives, by size and contender, every round and the spread."""
    chosen = run.chosen(CONTENDERS)
    if FLOOR not in chosen:
        chosen.insert(0, FLOOR)
    cases = {
        (size, one.name): Case(one.name, size=size, seconds=run.settings.seconds)
        for size in run.settings.sizes
        for one in chosen
    }
    measured = turns.measure(run, "capture", list(cases.values()), run.settings.rounds)
    found = {}
    for size in run.settings.sizes:
        rows = {one.name: measured[cases[size, one.name].key] for one in chosen}
        figures.with_floor(rows, FLOOR.name)
        found[str(size)] = {one.name: turns.entry(run, one, rows[one.name], KEYS) for one in chosen}
    return found
