# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `filters`: readers with different filters, of which one matches; and one of none."""

from __future__ import annotations

from ringtap_lab.manager.battery import OVERHEAD_S, Case
from ringtap_lab.scenarios import figures, readers, turns
from ringtap_lab.scenarios.readers import HUB, PACKET
from ringtap_lab.scenarios.run import Run

COUNTS = {HUB: (1, 8, 64), PACKET: (1, 8, 64)}
FLOOR, NO_MATCH = "XDP_DROP floor", "hub, no match"


def seconds(run: Run) -> float:
    """About how long it takes."""
    searches = sum(len(counts) for counts in COUNTS.values())
    return readers.searches_seconds(run, searches) + 2 * run.settings.rounds * (run.settings.seconds + OVERHEAD_S)


def run(run: Run) -> dict:
    """Gives the lossless rates, and beside the floor the rate when nobody wants anything."""
    found = readers.compare(run, "filters", COUNTS, "one matches")
    cases = {
        FLOOR: Case(FLOOR, size=readers.SIZE, seconds=run.settings.seconds),
        NO_MATCH: Case(HUB, size=readers.SIZE, filters="none matches", seconds=run.settings.seconds),
    }
    measured = turns.measure(run, "filters", list(cases.values()), run.settings.rounds)
    found["no-match"] = {
        name: {"rounds": measured[case.key], "summary": figures.summary(measured[case.key], ("offered_mpps",))}
        for name, case in cases.items()
    }
    return found


def against_floor(result: dict) -> float | None:
    """Median over the rounds: rate without a match, divided by the floor's."""
    rows = result.get("filters", {}).get("no-match", {})
    good = [
        [row for row in rows.get(name, {}).get("rounds", []) if not row["problems"]] for name in (NO_MATCH, FLOOR)
    ]
    found = figures.ratios(*good, "offered_mpps")
    return figures.spread(found)["median"] if found else None
