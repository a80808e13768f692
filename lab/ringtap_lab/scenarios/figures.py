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


def loss_percent(offered: int, delivered: int) -> float:
    """Share of the offered packets that did not arrive."""
    return 100.0 * (offered - delivered) / offered if offered else 0.0


def summary(rows: list[dict], keys: Iterable[str]) -> dict[str, dict[str, float]]:
    """The spread of each figure over the rounds that have it."""
    found = {}
    for key in keys:
        values = [row[key] for row in rows if row.get(key) is not None]
        if values:
            found[key] = spread(values)
    return found
