# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenarios `readers` and `filters`: the rate at which no one of many readers loses anything."""

from __future__ import annotations

from ringtap_lab.manager.battery import OVERHEAD_S, SEARCH_TRIALS, Case
from ringtap_lab.scenarios import figures, turns
from ringtap_lab.scenarios.run import Run

SIZE = 64
HUB, PACKET, TCPDUMP = "ringtap hub", "AF_PACKET", "tcpdump"
COUNTS = {HUB: (1, 2, 4, 8, 16), PACKET: (1, 2, 4, 8, 16), TCPDUMP: (1, 4, 8)}


def seconds(run: Run) -> float:
    """About how long it takes."""
    return searches_seconds(run, sum(len(counts) for counts in COUNTS.values()))


def searches_seconds(run: Run, searches: int) -> float:
    """About how long so many searches take in every round."""
    return searches * run.settings.crowd_rounds * SEARCH_TRIALS * (run.settings.crowd_seconds + OVERHEAD_S)


def run(run: Run) -> dict:
    """Gives, by contender and number of readers, the lossless rate of every round and the spread."""
    return compare(run, "readers", COUNTS)


def compare(run: Run, title: str, counts: dict[str, tuple[int, ...]], filters: str = "none") -> dict:
    """Searches the lossless rate of each contender and number of readers, by turns, round by round."""
    length = run.settings.crowd_seconds
    cases = {
        (name, count): Case(name, "lossless", SIZE, readers=count, filters=filters, seconds=length)
        for count in sorted({count for each in counts.values() for count in each})
        for name in counts if count in counts[name]
    }  # fmt: skip
    measured = turns.measure(run, title, list(cases.values()), run.settings.crowd_rounds)
    found = {"size": SIZE, "trial_seconds": length, "contenders": {}}
    for name, each in counts.items():
        rows = {str(count): measured[cases[name, count].key] for count in each}
        row = turns.entry(run, turns.KNOWN[name], next((one for one in rows.values() if one), []), ())
        spreads = {count: figures.summary(one, ("lossless_pps",)) for count, one in rows.items()}
        row["counts"] = {count: {"rounds": one, "summary": spreads[count]} for count, one in rows.items()}
        found["contenders"][name] = {key: row[key] for key in ("command", "note", "missing", "counts")}
    return found


def rounds_of(result: dict, scenario: str, name: str, count: int) -> list[dict]:
    """The rounds of so many readers of a kind, in a stored result."""
    kinds = result.get(scenario, {}).get("contenders", {})
    return kinds.get(name, {}).get("counts", {}).get(str(count), {}).get("rounds", [])


def ratio(result: dict, scenario: str, above: tuple[str, int], below: tuple[str, int]):
    """Median over the rounds of two lossless rates divided; None if one is missing."""
    pair = (rounds_of(result, scenario, name, count) for name, count in (above, below))
    found = figures.ratios(*pair, "lossless_pps")
    return figures.spread(found)["median"] if found else None
