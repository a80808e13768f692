# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `programs`: real libpcap programs, over libpcap and over Ringtap, by turns.

Rates are the highest at which nothing is lost; the latency is that of a callback in immediate mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringtap_lab.manager.battery import OVERHEAD_S, SEARCH_TRIALS, Case
from ringtap_lab.scenarios import figures, quiet, turns
from ringtap_lab.scenarios.run import Run

LATENCY_WAYS = ["libpcap immediate mode", "libpcap immediate mode, tap"]
TCPDUMP_WAYS, DUMPCAP_WAYS = (
    [name, f"{name}, exclusive tap", f"{name}, tap"] for name in ("tcpdump", "dumpcap file")
)
EIGHT_WAYS = ["tcpdump", "tcpdumps on a hub"]


@dataclass(frozen=True)
class Search:
    """One comparison of lossless rates; several readers have filters, each of which takes its part of the flows."""

    title: str
    size: int
    #: The first of them over libpcap.
    ways: list[str]
    readers: int = 1

    def case(self, name: str, seconds: float) -> Case:
        """The case of one contender."""
        filters = "parts" if self.readers > 1 else "none"
        return Case(name, "lossless", self.size, readers=self.readers, flows=self.readers, filters=filters,
                    seconds=seconds)  # fmt: skip


SEARCHES = [
    Search("tcpdump", 64, TCPDUMP_WAYS),
    Search("dumpcap", 1500, DUMPCAP_WAYS),
    Search("eight tcpdumps", 64, EIGHT_WAYS, 8),
]


def seconds(run: Run) -> float:
    """About how long it takes."""
    searches = sum(len(one.ways) for one in SEARCHES)
    rates = searches * run.settings.crowd_rounds * SEARCH_TRIALS * (run.settings.crowd_seconds + OVERHEAD_S)
    return rates + len(LATENCY_WAYS) * run.settings.wake_rounds * (
        run.settings.low_rate_seconds + 1.5
    )


def run(run: Run) -> dict:
    """Gives, by comparison and contender, every round and the spread."""
    found = {search.title: _compare(run, search) for search in SEARCHES}
    found["latency"] = quiet.low_rate_of(run, "programs", LATENCY_WAYS, run.settings.wake_rounds)
    return found


def _compare(run: Run, search: Search) -> dict:
    cases = {name: search.case(name, run.settings.crowd_seconds) for name in search.ways}
    measured = turns.measure(run, "programs", list(cases.values()), run.settings.crowd_rounds)
    entries = {
        name: turns.entry(run, turns.KNOWN[name], measured[case.key], ("lossless_pps",))
        for name, case in cases.items()
    }
    return {"size": search.size, "contenders": entries}


def rounds_of(result: dict, title: str, name: str) -> list[dict]:
    """The rounds of one contender, in a stored result."""
    kinds = result.get("programs", {}).get(title, {}).get("contenders", {})
    rows = kinds.get(name, {}).get("rounds", [])
    return [row for row in rows if not row.get("problems")]


def ratio(result: dict, title: str, ours: str, theirs: str, key: str) -> float | None:
    """Median over the rounds: ours divided by theirs; None if one is missing."""
    both = (rounds_of(result, title, name) for name in (ours, theirs))
    found = figures.ratios(*both, key)
    return figures.spread(found)["median"] if found else None


def rate_ratio(title: str, ways: list[str], at: int = 1) -> Callable[[dict], float | None]:
    """The lossless rate of one way over Ringtap against libpcap's, as a figure of a goal."""
    return lambda result: ratio(result, title, ways[at], ways[0], "lossless_pps")


def beside(title: str, ways: list[str]) -> Callable[[dict], str]:
    """The same for the tap that passes packets on, in words."""

    def words(result: dict) -> str:
        other = rate_ratio(title, ways, 2)(result)
        return "" if other is None else f"{other:.2f} x where packets go on to the host"

    return words


def latency_rounds(result: dict) -> list[list[dict]]:
    """The rounds of the callback over Ringtap, and of libpcap's."""
    return [rounds_of(result, "latency", name) for name in reversed(LATENCY_WAYS)]


def latency_ratio(result: dict) -> float | None:
    """Median latency to a callback against libpcap's."""
    return quiet.latency_ratio(*latency_rounds(result))


def latency_exactly(result: dict) -> str:
    """Both medians."""
    return quiet.latencies(*latency_rounds(result))
