# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenarios `distance` and `latency`: what readers that follow the capture closely cost it, and how
late packets reach them when many come."""

from __future__ import annotations

from ringtap_lab.manager.battery import OVERHEAD_S, Case
from ringtap_lab.scenarios import figures, quiet, readers, turns
from ringtap_lab.scenarios.run import Run

SIZE = 64
#: The second looks at the capture rarely, because the user asks for it.
USUAL, RARELY = READERS = (readers.HUB, "reader with a watermark")
RATES = {"1 Mpps": "1mpps", "full rate": "max"}
KEYS = ("median_ns", "p99_ns", "max_ns", "lost")
LATE = "tap exclusive latency"


def distance_seconds(run: Run) -> float:
    """About how long it takes."""
    return 2 * run.settings.rounds * (run.settings.seconds + OVERHEAD_S)


def distance(run: Run) -> dict:
    """The rate of the capture with a reader by default, and with one that looks rarely."""
    cases = {name: Case(name, size=SIZE, seconds=run.settings.seconds) for name in READERS}
    keys = ("delivered_mpps", "lost")
    return {"size": SIZE, "contenders": quiet.latencies_of(run, "distance", cases, run.settings.rounds, keys, turns.SENDER)}


def latency_seconds(run: Run) -> float:
    """About how long it takes."""
    return len(RATES) * run.settings.rounds * (run.settings.seconds + OVERHEAD_S)


def latency(run: Run) -> dict:
    """Time from a packet's time stamp to the reader, by rate."""
    cases = {name: Case(LATE, size=SIZE, rate=rate, seconds=run.settings.seconds) for name, rate in RATES.items()}
    entries = quiet.latencies_of(run, "latency", cases, run.settings.rounds, KEYS, turns.SENDER)
    return {"size": SIZE, "contenders": entries}


def rate_ratio(result: dict) -> float | None:
    """The capture's rate with the reader that looks rarely, divided by that with the default."""
    rarely, usual = (figures.good_rounds(result, "distance", name) for name in (RARELY, USUAL))
    found = figures.ratios(rarely, usual, "delivered_mpps")
    return figures.spread(found)["median"] if found else None


def p99_us(result: dict, rate: str) -> float | None:
    """Median over the rounds of the time within which 99 of 100 packets reach the reader."""
    found = [row["p99_ns"] / 1e3 for row in figures.good_rounds(result, "latency", rate)]
    return figures.spread(found)["median"] if found else None
