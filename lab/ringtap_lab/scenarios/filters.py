# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `filters`: readers with different filters, of which one matches; and one of none."""

from __future__ import annotations

from ringtap_lab.scenarios import contenders, figures, readers, trial
from ringtap_lab.scenarios.crowd import HUB, PACKET, Wanted, measure
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.trial import Traffic

COUNTS = {HUB: (1, 8, 64), PACKET: (1, 8, 64)}
#: The sender's packets: UDP from 198.18.0.1 port 10000 to 198.19.0.1 port 9.
MATCHING = Wanted("udp dst port 9")
#: What others ask for; each number makes it another filter.
OTHERS = ("udp dst port {}", "tcp port {}", "host 203.0.113.{}", "net 10.{}.0.0/16 and udp")
NO_MATCH = "hub, no match"


def wanted(count: int) -> list[Wanted]:
    """So many different filters, the last of which takes all packets of the sender."""
    others = [
        Wanted(OTHERS[number % len(OTHERS)].format(number + 20), matches=False)
        for number in range(count - 1)
    ]
    return [*others, MATCHING]


def seconds(run: Run) -> float:
    """About how long it takes."""
    searches = sum(len(counts) for counts in COUNTS.values())
    each = run.settings.seconds + readers.OVERHEAD_SECONDS
    return readers.searches_seconds(run, searches) + 2 * run.settings.rounds * each


def run(run: Run) -> dict:
    """Gives the lossless rates, and beside the floor the rate when nobody wants anything."""
    found = readers.compare(run, "filters", COUNTS, wanted)
    found["no-match"] = _no_match(run)
    return found


def _no_match(run: Run) -> dict:
    """Full speed while the only reader's filter takes nothing, and while XDP drops all."""
    traffic = Traffic(readers.SIZE, "max", run.settings.seconds)
    nothing = [Wanted(OTHERS[0].format(20), matches=False)]
    floor = contenders.FLOOR
    ways = {
        floor.name: (floor, lambda: trial.measure(run.programs, floor, traffic)),
        NO_MATCH: (HUB.reader, lambda: measure(run, HUB, nothing, traffic)),
    }
    rows: dict[str, list[dict]] = {name: [] for name in ways}
    for number in range(run.settings.rounds):
        for name, (contender, work) in ways.items():
            row = run.attempt(contender, work)
            if row is None:
                continue
            rows[name].append({"round": number, **row})
            run.say(
                f"filters  round {number + 1}/{run.settings.rounds}  {name:<15}"
                f" {row['offered_mpps']:7.3f} Mpps"
            )
    return {
        name: {"rounds": each, "summary": figures.summary(each, ("offered_mpps",))}
        for name, each in rows.items()
    }


def against_floor(result: dict) -> float | None:
    """Median over the rounds: rate without a match, divided by the floor's."""
    rows = result.get("filters", {}).get("no-match", {})
    good = [
        [row for row in rows.get(name, {}).get("rounds", []) if not row["problems"]]
        for name in (NO_MATCH, contenders.FLOOR.name)
    ]
    found = figures.ratios(*good, "offered_mpps")
    return figures.spread(found)["median"] if found else None
