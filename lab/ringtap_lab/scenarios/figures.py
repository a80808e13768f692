# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pure arithmetic of the benchmark: medians, spreads, and what a packet costs above the floor."""

from __future__ import annotations

import statistics
from collections.abc import Iterable


def spread(values: Iterable[float]) -> dict[str, float]:
    """The median of at least one value, with the smallest and the largest."""
    known = list(values)
    return {"median": statistics.median(known), "min": min(known), "max": max(known)}


def rate_mpps(packets: int, elapsed_ns: int) -> float:
    """Millions of packets a second."""
    return packets * 1000.0 / elapsed_ns


def ns_above_floor(rate: float, floor_rate: float) -> float | None:
    """Nanoseconds a packet takes longer than when it is only dropped; both rates in Mpps.

    None if nothing went through: no number of nanoseconds would be true.
    """
    if rate <= 0 or floor_rate <= 0:
        return None
    return 1000.0 / rate - 1000.0 / floor_rate


def loss_percent(offered: int, delivered: int) -> float:
    """Share of the offered packets that did not arrive."""
    return 100.0 * (offered - delivered) / offered if offered else 0.0


def good_rounds(result: dict, scenario: str, name: str) -> list[dict]:
    """The rounds of a contender in which all accounts agree."""
    found = result.get(scenario, {}).get("contenders", {}).get(name, {}).get("rounds", [])
    return [row for row in found if not row["problems"]]


def ratios(above: list[dict], below: list[dict], key: str) -> list[float]:
    """One figure of two contenders divided, round by round; rounds that miss either are left out.

    Pairs of one round met the same state of the machine, so their ratio is steadier than the
    ratio of two medians.
    """
    other = {row["round"]: row.get(key) for row in below}
    pairs = [(row.get(key), other.get(row["round"])) for row in above]
    return [mine / theirs for mine, theirs in pairs if mine is not None and theirs]


def with_floor(rounds: dict[str, list[dict]], floor: str) -> None:
    """Adds to each measurement what a packet costs above the floor of the same round.

    Twice: by the rate that arrived, and by the rate that the sender got rid of. They differ
    where packets were lost; the first is what a user gets, the second what capture costs the
    sending and receiving side.
    """
    floors = {row["round"]: row["delivered_mpps"] for row in rounds.get(floor, [])}
    for name, rows in rounds.items():
        for row in rows if name != floor else []:
            below = floors.get(row["round"], 0.0)
            row["ns_above_floor"] = ns_above_floor(row["delivered_mpps"], below)
            row["ns_above_floor_offered"] = ns_above_floor(row["offered_mpps"], below)


def summary(rows: list[dict], keys: Iterable[str]) -> dict[str, dict[str, float]]:
    """The spread of each figure over the rounds that have it."""
    found = {}
    for key in keys:
        values = [row[key] for row in rows if row.get(key) is not None]
        if values:
            found[key] = spread(values)
    return found
