# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `record`: the highest rate at which 1500-byte packets reach a tmpfs file without loss."""

from __future__ import annotations

import math
from collections.abc import Callable

import contenders
import figures
from run import Run
from trial import Traffic, measure

SIZE = 1500
#: The search ends when the lossless and the lossy rate are this close.
PRECISION = 1.04
STEPS = 7
#: Later rounds look first this far around what earlier ones found.
NEIGHBOURHOOD = 1.12
#: More packets a second than any two cores send; bounds the size of the files.
FASTEST_PPS = 1_500_000

Probe = Callable[[str], "tuple[float, float, bool] | None"]


def highest_lossless(probe: Probe, hint: float | None) -> dict | None:
    """Searches the highest lossless rate, in packets a second, in at most `STEPS` trials.

    `probe` takes a rate for the sender and gives the rate that was sent, the rate that was
    delivered and whether nothing was lost. None if a trial failed.
    """
    good, bad, limited = 0.0, math.inf, False
    rate = hint * NEIGHBOURHOOD if hint else None
    for _ in range(STEPS):
        seen = probe(f"{rate:.0f}pps" if rate else "max")
        if seen is None:
            return None
        sent, delivered, lossless = seen
        if lossless:
            good = max(good, sent)
            # The sender gave all it had, and it was not enough.
            if rate is None or sent < rate * 0.97:
                limited = True
                break
        else:
            bad = min(bad, sent)
        if good and bad / good < PRECISION:
            break
        rate = _next(good, bad, delivered, hint)
    return {"lossless_pps": good, "lossy_pps": bad if bad < math.inf else None, "limited": limited}


def _next(good: float, bad: float, delivered: float, hint: float | None) -> float | None:
    """The rate to try next; None is all that the sender has."""
    if good and bad < math.inf:
        return math.sqrt(good * bad)
    if good:
        return good * 1.3
    if hint and bad > hint:
        return hint / NEIGHBOURHOOD
    # What got through in spite of the loss is near the answer, seldom above it.
    return min(delivered, bad * 0.8)


def _trial_seconds(run: Run) -> float:
    """As long as wanted, or shorter where the files would not fit into half of the memory."""
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        kib = next(int(line.split()[1]) for line in meminfo if line.startswith("MemAvailable"))
    return min(run.settings.record_seconds, kib * 1024 * 0.4 / (FASTEST_PPS * SIZE))


def seconds(run: Run) -> float:
    """About how long it takes: later rounds need fewer trials."""
    trials = STEPS + 4 * (run.settings.record_rounds - 1)
    return trials * len(run.chosen(contenders.RECORD)) * (run.settings.record_seconds + 1.5)


def run(run: Run) -> dict:
    """Gives, by contender, the rate of every round and the spread."""
    chosen = run.chosen(contenders.RECORD)
    rows: dict[str, list[dict]] = {one.name: [] for one in chosen}
    length = _trial_seconds(run)
    for number in range(run.settings.record_rounds):
        for one in chosen:
            row = _search(run, one, length, _hint(rows[one.name]))
            if row is None:
                continue
            rows[one.name].append({"round": number, **row})
            run.say(
                f"record {SIZE} B  round {number + 1}/{run.settings.record_rounds}  {one.name:<31}"
                f" {row['lossless_pps'] / 1e6:6.3f} Mpps without loss"
                + (" (the sender's limit)" if row["limited"] else "")
            )
    found = {"size": SIZE, "trial_seconds": length, "contenders": {}}
    for one in chosen:
        row = run.entry(one)
        row["rounds"] = rows[one.name]
        row["summary"] = figures.summary(rows[one.name], ("lossless_pps",))
        found["contenders"][one.name] = row
    return found


def _hint(rows: list[dict]) -> float | None:
    known = [row["lossless_pps"] for row in rows if row["lossless_pps"] > 0]
    return figures.spread(known)["median"] if known else None


def _search(
    run: Run, contender: contenders.Contender, length: float, hint: float | None
) -> dict | None:
    trials = []

    def probe(rate: str) -> tuple[float, float, bool] | None:
        traffic = Traffic(SIZE, rate, length)
        row = run.attempt(contender, lambda: measure(run.programs, contender, traffic))
        if row is None:
            return None
        trials.append({"rate": rate, **row})
        return row["offered_mpps"] * 1e6, row["delivered_mpps"] * 1e6, row["lost"] == 0

    found = highest_lossless(probe, hint)
    return None if found is None else {**found, "trials": trials}
