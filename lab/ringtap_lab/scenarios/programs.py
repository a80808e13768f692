# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `programs`: real libpcap programs, over libpcap and over Ringtap, by turns.

Rates are the highest at which nothing is lost; the latency is that of a callback in immediate mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ringtap_lab.scenarios import figures, quiet, trial
from ringtap_lab.scenarios.contenders import DUMPCAP_FILE, TASKSET, TCPDUMP, Contender
from ringtap_lab.scenarios.crowd import HUB_COMMAND, TCPDUMPS, Crowd, Wanted, measure
from ringtap_lab.scenarios.lossless import highest_lossless, hint_of
from ringtap_lab.scenarios.readers import TRIALS, entry
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.trial import Traffic

#: dumpcap calls `select` before every packet unless it finds no descriptor for it.
_EXEC = "env RINGTAP_NO_SELECT=1 {ringtap} exec --quiet -- "
_EXCLUSIVE, _PASS = "'tap:{dev}?exclusive&pool={ring_mib}MiB'", "'tap:{dev}?pool={ring_mib}MiB'"
PASSES = "packets go on into the host's network stack, as with libpcap"


def _through(contender: Contender, name: str, device: str, note: str) -> Contender:
    """The same program over Ringtap, reading this device."""
    command = contender.command.replace(TASKSET, TASKSET + _EXEC).replace("{dev}", device)
    return replace(
        contender, name=f"{contender.name}, {name}", command=command, attached="xdp", note=note
    )


def _both(contender: Contender) -> list[Contender]:
    return [
        contender,
        _through(contender, "exclusive tap", _EXCLUSIVE, "packets end here"),
        _through(contender, "tap", _PASS, PASSES),
    ]


TCPDUMP_WAYS, DUMPCAP_WAYS = _both(TCPDUMP), _both(DUMPCAP_FILE)
LATENCY_WAYS = ["libpcap immediate mode", "libpcap immediate mode, tap"]
#: Eight programs with eight filters, each of which takes an eighth of the traffic.
EIGHT = 8
FILTERS = [Wanted(f"udp src port {10000 + number}", part=EIGHT) for number in range(EIGHT)]
EIGHT_WAYS = [
    TCPDUMPS,
    Crowd(
        replace(
            TCPDUMPS.reader, name="tcpdumps on a hub", attached="pool",
            command=TCPDUMPS.reader.command.replace(TASKSET, TASKSET + _EXEC)
            .replace("{dev}", "'hub:all?socket={scratch}/hub.sock'"),
            note="one exclusive tap for all: packets end here",
        ),
        HUB_COMMAND, sums=False,
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Search:
    """One comparison of lossless rates."""

    title: str
    size: int
    #: By contender, one measurement at a rate.
    ways: list[tuple[Contender, Callable[[Run, Traffic], dict]]]
    flows: int = 1


def _alone(contender: Contender) -> tuple[Contender, Callable[[Run, Traffic], dict]]:
    return contender, lambda run, traffic: trial.measure(run.programs, contender, traffic)


def _crowd(crowd: Crowd) -> tuple[Contender, Callable[[Run, Traffic], dict]]:
    return crowd.reader, lambda run, traffic: measure(run, crowd, FILTERS, traffic)


SEARCHES = [
    Search("tcpdump", 64, [_alone(one) for one in TCPDUMP_WAYS]),
    Search("dumpcap", 1500, [_alone(one) for one in DUMPCAP_WAYS]),
    Search("eight tcpdumps", 64, [_crowd(one) for one in EIGHT_WAYS], EIGHT),
]


def seconds(run: Run) -> float:
    """About how long it takes."""
    searches = sum(len(one.ways) for one in SEARCHES)
    rates = searches * run.settings.crowd_rounds * TRIALS * (run.settings.crowd_seconds + 2.5)
    return rates + len(LATENCY_WAYS) * run.settings.wake_rounds * (
        run.settings.low_rate_seconds + 1.5
    )


def run(run: Run) -> dict:
    """Gives, by comparison and contender, every round and the spread."""
    found = {search.title: _compare(run, search) for search in SEARCHES}
    found["latency"] = quiet.low_rate_of(run, "programs", LATENCY_WAYS, run.settings.wake_rounds)
    return found


def _compare(run: Run, search: Search) -> dict:
    rows: dict[str, list[dict]] = {contender.name: [] for contender, _ in search.ways}
    for number in range(run.settings.crowd_rounds):
        for contender, work in search.ways:
            row = _search(run, search, contender, work, hint_of(rows[contender.name]))
            if row is None:
                continue
            rows[contender.name].append({"round": number, **row})
            run.say(
                f"programs  round {number + 1}/{run.settings.crowd_rounds}  {contender.name:<28}"
                f" {row['lossless_pps'] / 1e6:7.3f} Mpps without loss"
                + (" (the sender's limit)" if row["limited"] else "")
            )
    found = {"size": search.size, "contenders": {}}
    for contender, _ in search.ways:
        each = rows[contender.name]
        summary = figures.summary(each, ("lossless_pps",))
        found["contenders"][contender.name] = {
            **_entry(run, contender), "rounds": each, "summary": summary,
        }  # fmt: skip
    return found


def _entry(run: Run, contender: Contender) -> dict:
    crowds = {crowd.reader.name: crowd for crowd in EIGHT_WAYS}
    crowd = crowds.get(contender.name)
    return entry(run, crowd) if crowd else run.entry(contender)


def _search(
    run: Run, search: Search, contender: Contender, work: Callable, hint: float | None
) -> dict | None:
    trials = []

    def probe(rate: str) -> tuple[float, float, bool] | None:
        traffic = Traffic(search.size, rate, run.settings.crowd_seconds, search.flows)
        row = run.attempt(contender, lambda: work(run, traffic))
        if row is None:
            return None
        trials.append({"rate": rate, **row})
        lossless = row["lost"] == 0 and not row["problems"]
        return row["offered_mpps"] * 1e6, row["delivered_mpps"] * 1e6, lossless

    if run.programs.missing(contender):
        return None
    found = highest_lossless(probe, hint)
    return None if found is None else {**found, "trials": trials}


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


def rate_ratio(title: str, ways: list[Contender], at: int = 1) -> Callable[[dict], float | None]:
    """The lossless rate of one way over Ringtap against libpcap's, as a figure of a goal."""
    return lambda result: ratio(result, title, ways[at].name, ways[0].name, "lossless_pps")


def beside(title: str, ways: list[Contender]) -> Callable[[dict], str]:
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
