# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `placement`: reader and receiving kernel on one core (A:A), on two (A:B), by the scheduler.

After Braun et al. (IMC 2010). The sender stands for the NIC: its core is the one that receives.
It takes part of that core, which no real NIC would: with A:A the reader gets what is left.
"""

from __future__ import annotations

from ringtap_lab.manager.battery import OVERHEAD_S, Case
from ringtap_lab.scenarios import figures, turns
from ringtap_lab.scenarios.run import Run

SIZE = 64
RATES = ("10000pps", "100000pps", "500000pps", "1Mpps", "2Mpps", "max")
LATE = "tap exclusive latency"
WAYS = {"A:A": f"{LATE}, A:A", "A:B": LATE, "scheduler": f"{LATE}, scheduler", "--cpu auto": f"{LATE}, --cpu auto"}
KEYS = ("delivered_mpps", "loss_percent", "reader_ns", "median_us")
#: Losses below this are none, for a choice.
LITTLE_PERCENT = 0.01


def seconds(run: Run) -> float:
    """About how long it takes."""
    return (run.settings.seconds + OVERHEAD_S) * len(RATES) * len(WAYS) * run.settings.low_rate_rounds


def run(run: Run) -> dict:
    """By rate and placement, every round and the spread; and which one to choose."""
    cases = {
        (rate, name): Case(one, size=SIZE, rate=rate, seconds=run.settings.seconds)
        for rate in RATES
        for name, one in WAYS.items()
    }
    measured = turns.measure(run, "placement", list(cases.values()), run.settings.low_rate_rounds)
    found: dict[str, dict] = {}
    for rate in RATES:
        rows = {name: measured[cases[rate, name].key] for name in WAYS}
        for row in (row for each in rows.values() for row in each):
            row["median_us"] = row["median_ns"] / 1000
        ways = {name: {"rounds": each, "summary": figures.summary(each, KEYS)} for name, each in rows.items()}
        found[rate] = {"ways": ways, "choice": choice(ways)}
        run.say(f"placement {rate:>10}  best: {found[rate]['choice']}")
    return found


def choice(ways: dict) -> str:
    """The placement to choose: least loss, then most packets, then the least work of the reader."""
    known = {name: way["summary"] for name, way in ways.items() if way["summary"]}
    if not known:
        return "not measured"
    lost = {name: one["loss_percent"]["median"] for name, one in known.items()}
    least = max(min(lost.values()), LITTLE_PERCENT)
    good = [name for name in known if lost[name] <= least]
    most = max(known[name]["delivered_mpps"]["median"] for name in good)
    good = [name for name in good if known[name]["delivered_mpps"]["median"] >= 0.97 * most]
    return min(good, key=lambda name: known[name]["reader_ns"]["median"])
