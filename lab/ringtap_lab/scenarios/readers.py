# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenarios `readers` and `filters`: the rate at which no one of many readers loses anything."""

from __future__ import annotations

from ringtap_lab.scenarios import figures
from ringtap_lab.scenarios.crowd import HUB, PACKET, TCPDUMPS, Crowd, Wanted, measure
from ringtap_lab.scenarios.lossless import highest_lossless, hint_of
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.trial import Traffic

SIZE = 64
COUNTS = {HUB: (1, 2, 4, 8, 16), PACKET: (1, 2, 4, 8, 16), TCPDUMPS: (1, 4, 8)}
#: Starting, letting all finish, and ending them.
OVERHEAD_SECONDS = 2.0
#: Trials of one search, by experience: most end at the sender's limit or beside the last answer.
TRIALS = 3


def seconds(run: Run) -> float:
    """About how long it takes."""
    searches = sum(len(counts) for counts in COUNTS.values())
    return searches_seconds(run, searches)


def searches_seconds(run: Run, searches: int) -> float:
    """About how long so many searches take in every round."""
    each = run.settings.crowd_seconds + OVERHEAD_SECONDS
    return searches * run.settings.crowd_rounds * TRIALS * each


def run(run: Run) -> dict:
    """Gives, by kind and number of readers, the lossless rate of every round and the spread."""
    return compare(run, "readers", COUNTS, lambda count: [Wanted()] * count)


def compare(run: Run, title: str, counts: dict[Crowd, tuple[int, ...]], wanted) -> dict:
    """Searches the lossless rate of each kind and number of readers, by turns, round by round.

    `wanted` gives for a number of readers what each of them asks for.
    """
    rows = {(crowd, count): [] for crowd, each in counts.items() for count in each}
    numbers = sorted({count for _, count in rows})
    for number in range(run.settings.crowd_rounds):
        for count in numbers:
            for crowd in counts:
                if (crowd, count) not in rows:
                    continue
                row = _search(run, crowd, wanted(count), hint_of(rows[crowd, count]))
                if row is None:
                    continue
                rows[crowd, count].append({"round": number, **row})
                run.say(
                    f"{title}  round {number + 1}/{run.settings.crowd_rounds}  {count:>3} x"
                    f" {crowd.name:<12} {row['lossless_pps'] / 1e6:7.3f} Mpps without loss"
                    + (" (the sender's limit)" if row["limited"] else "")
                )
    found = {"size": SIZE, "trial_seconds": run.settings.crowd_seconds, "contenders": {}}
    for crowd, each in counts.items():
        row = entry(run, crowd)
        row["counts"] = {
            str(count): {
                "rounds": rows[crowd, count],
                "summary": figures.summary(rows[crowd, count], ("lossless_pps",)),
            }
            for count in each
        }
        found["contenders"][crowd.name] = row
    return found


def entry(run: Run, crowd: Crowd) -> dict:
    """What a result says of a crowd, its hub included."""
    row = run.entry(crowd.reader)
    if crowd.hub:
        row["command"] += "  # on: " + run.programs.fill(crowd.hub)
    return row


def _search(run: Run, crowd: Crowd, wanted: list[Wanted], hint: float | None) -> dict | None:
    trials = []

    def probe(rate: str) -> tuple[float, float, bool] | None:
        traffic = Traffic(SIZE, rate, run.settings.crowd_seconds)
        row = run.attempt(crowd.reader, lambda: measure(run, crowd, wanted, traffic))
        if row is None:
            return None
        trials.append({"rate": rate, **row})
        lossless = row["lost"] == 0 and not row["problems"]
        return row["offered_mpps"] * 1e6, row["delivered_mpps"] * 1e6, lossless

    if run.programs.missing(crowd.reader):
        return None
    found = highest_lossless(probe, hint)
    return None if found is None else {**found, "trials": trials}


def rounds_of(result: dict, scenario: str, name: str, count: int) -> list[dict]:
    """The rounds of so many readers of a kind, in a stored result."""
    kinds = result.get(scenario, {}).get("contenders", {})
    return kinds.get(name, {}).get("counts", {}).get(str(count), {}).get("rounds", [])


def ratio(result: dict, scenario: str, above: tuple[str, int], below: tuple[str, int]):
    """Median over the rounds of two lossless rates divided; None if one is missing."""
    pair = (rounds_of(result, scenario, name, count) for name, count in (above, below))
    found = figures.ratios(*pair, "lossless_pps")
    return figures.spread(found)["median"] if found else None
