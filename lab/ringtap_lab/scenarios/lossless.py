# SPDX-License-Identifier: MIT OR Apache-2.0
"""Searches the highest rate at which nothing is lost, in few trials."""

from __future__ import annotations

from collections.abc import Callable

from ringtap_lab.manager.search import Search
from ringtap_lab.scenarios import figures
from ringtap_lab.scenarios.contenders import Contender
from ringtap_lab.scenarios.run import Run

Probe = Callable[[str], "tuple[float, float, bool] | None"]


def highest_lossless(probe: Probe, hint: float | None) -> dict | None:
    """Searches the highest lossless rate, in packets a second, in at most `STEPS` trials.

    `probe` takes a rate for the sender and gives the rate that was sent, the rate that was
    delivered and whether nothing was lost. None if a trial failed.
    """
    search = Search(hint)
    while rate := search.rate:
        seen = probe(rate)
        if seen is None:
            return None
        search.tell(*seen)
    return search.result()


def hint_of(rows: list[dict]) -> float | None:
    """What earlier rounds found."""
    known = [row["lossless_pps"] for row in rows if row["lossless_pps"] > 0]
    return figures.spread(known)["median"] if known else None


def rounds_of(
    run: Run,
    label: str,
    contenders: list[Contender],
    measure: Callable[[Contender, str], dict],
    delivered_pps: Callable[[dict], float] = lambda row: row["delivered_mpps"] * 1e6,
) -> dict:
    """The highest rates without loss of contenders, in turn, with all trials.

    `measure` sends to one at a rate; `delivered_pps` is what it could take of that, for the choice of the next rate."""
    rows: dict[str, list[dict]] = {one.name: [] for one in contenders}
    for number in range(run.settings.record_rounds):
        for one in contenders:
            row = _searched(run, one, measure, delivered_pps, hint_of(rows[one.name]))
            if row is None:
                continue
            rows[one.name].append({"round": number, **row})
            run.say(
                f"{label}  round {number + 1}/{run.settings.record_rounds}  {one.name:<20}"
                f" {row['lossless_pps'] / 1e3:8.1f} kpps without loss"
            )
    return {
        one.name: {
            **run.entry(one),
            "rounds": rows[one.name],
            "summary": figures.summary(rows[one.name], ("lossless_pps",)),
        }
        for one in contenders
    }


def _searched(
    run: Run,
    one: Contender,
    measure: Callable[[Contender, str], dict],
    delivered_pps: Callable[[dict], float],
    hint: float | None,
) -> dict | None:
    trials = []

    def probe(rate: str) -> tuple[float, float, bool] | None:
        row = run.attempt(one, lambda: measure(one, rate))
        if row is None:
            return None
        trials.append({"rate": rate, **row})
        return row["offered_mpps"] * 1e6, delivered_pps(row), row["lost"] == 0

    found = highest_lossless(probe, hint)
    return None if found is None else {**found, "trials": trials}
