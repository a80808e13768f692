# SPDX-License-Identifier: MIT OR Apache-2.0
"""Searches the highest rate at which nothing is lost, in few trials."""

from __future__ import annotations

from collections.abc import Callable

from ringtap_lab.manager.search import Search

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
