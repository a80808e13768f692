# SPDX-License-Identifier: MIT OR Apache-2.0
"""The figures that the project wants to reach, each compared with what one run measured.

Invariants
- A goal whose figure was not measured, or whose measurement contradicts itself, is never met.
- Goals are numbers here, and nowhere else.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from ringtap_lab.scenarios import (
    contenders,
    distance,
    figures,
    filters,
    flows,
    forward,
    hub,
    meter,
    opening,
    programs,
    python_bench,
    questions,
    quiet,
    readers,
    record,
    shunting,
)
from ringtap_lab.scenarios.readers import HUB, PACKET

SMALL, LARGE = "64", "1500"
EXCLUSIVE, FLOOR = contenders.TAP_EXCLUSIVE.name, contenders.FLOOR.name
TCPDUMP, XDP = contenders.TCPDUMP.name, record.AF_XDP.contenders[0].name
TAP_RECORD, EXCLUSIVE_RECORD, OTHER_RECORD = (one.name for one in record.RECORD.contenders)
IDLE_TAP, IDLE_PACKET = contenders.TAP_PASS.name, contenders.PACKET.name
LOW_RATE_TAP = quiet.LOW_RATE[0].name


@dataclass(frozen=True)
class Goal:
    """One figure to reach."""

    text: str
    #: `least` or `most`, and the number.
    bound: str
    number: float
    unit: str
    #: Finds the figure in a result; None if it is not there.
    figure: Callable[[dict], float | None]
    #: More to know beside the figure.
    beside: Callable[[dict], str] = lambda _result: ""


def _rounds(result: dict, name: str, size: str = SMALL) -> list[dict]:
    """The rounds of a contender whose accounts agree."""
    rows = result.get("capture", {}).get(size, {}).get(name, {}).get("rounds", [])
    return [row for row in rows if not row["problems"]]


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _lost(result: dict, name: str = EXCLUSIVE) -> float | None:
    """Packets lost in all rounds together; a round with contradictions is no proof of none."""
    rows = result.get("capture", {}).get(SMALL, {}).get(name, {}).get("rounds", [])
    if not rows or any(row["problems"] for row in rows):
        return None
    return sum(row["lost"] for row in rows)


def _against_tcpdump(
    result: dict, size: str = SMALL, key: str = "ns_above_floor"
) -> float | None:
    rows, other = _rounds(result, EXCLUSIVE, size), _rounds(result, TCPDUMP, size)
    return _median(figures.ratios(rows, other, key))


def _by_offered(size: str) -> Callable[[dict], str]:
    def beside(result: dict) -> str:
        ratio = _against_tcpdump(result, size, "ns_above_floor_offered")
        return "" if ratio is None else f"{ratio:.3f} by the offered rates"

    return beside


def _pool(chunks: int) -> Callable[[dict], float | None]:
    def figure(result: dict) -> float | None:
        summary = result.get("pool", {}).get(str(chunks), {}).get("summary", {})
        return summary.get("mpps", {}).get("min")

    return figure


def _simulated(result: dict) -> float | None:
    summary = result.get("sim", {}).get("(256,500)", {}).get("summary", {})
    return summary.get("mpps", {}).get("median")


def _lossless_ratio(scenario: str, ours: str, other: str) -> Callable[[dict], float | None]:
    """Lossless rate of `ours` divided by that of `other`, round by round."""

    def figure(result: dict) -> float | None:
        found = result.get(scenario, {}).get("contenders", {})
        rows, others = (found.get(name, {}).get("rounds", []) for name in (ours, other))
        return _median(figures.ratios(rows, others, "lossless_pps"))

    return figure


def _record_exclusive(result: dict) -> str:
    ratio = _lossless_ratio("record", EXCLUSIVE_RECORD, OTHER_RECORD)(result)
    return "" if ratio is None else f"{ratio:.2f} with tap exclusive"


def _idle(name: str) -> Callable[[dict], float | None]:
    def figure(result: dict) -> float | None:
        row = result.get("idle", {}).get("contenders", {}).get(name, {}).get("result")
        return row["cpu_ticks"] if row and not row["problems"] else None

    return figure


def _idle_exactly(name: str) -> Callable[[dict], str]:
    def beside(result: dict) -> str:
        idle = result.get("idle", {})
        row = idle.get("contenders", {}).get(name, {}).get("result")
        return f"{row['cpu_ns'] / 1e6:.2f} ms in {idle['seconds']:g} s" if row else ""

    return beside


def _pacing(result: dict) -> float | None:
    """The worst of all rounds at all rates; every rate must have been measured."""
    rates = result.get("pacing", {}).values()
    worst = [one["summary"].get("deviation_percent", {}).get("max") for one in rates]
    return None if not worst or None in worst else max(worst)


def _latency(result: dict) -> float | None:
    rows = result.get("low-rate", {}).get("contenders", {}).get(LOW_RATE_TAP, {}).get("rounds", [])
    good = [row["median_ns"] / 1000 for row in rows if not row["problems"]]
    return _median(good)


def _crowd(result: dict, above: tuple[str, int], below: tuple[str, int]) -> float | None:
    return readers.ratio(result, "readers", above, below)


GOALS = [
    Goal("64 bytes: packets that tap exclusive lost, all rounds", "most", 0, "packets", _lost),
    Goal(
        "64 bytes: ns above the floor, tap exclusive against tcpdump",
        "most", 0.18, "x", _against_tcpdump, _by_offered(SMALL),
    ),
    Goal(
        "1500 bytes: ns above the floor, tap exclusive against tcpdump",
        "most", 0.25, "x", lambda result: _against_tcpdump(result, LARGE), _by_offered(LARGE),
    ),
    Goal("64 bytes: AF_XDP in copy mode against DPDK's testpmd, lossless rates",
         "least", 0.9, "x", _lossless_ratio("af-xdp", XDP, record.AF_XDP.contenders[1].name)),
    Goal("64 bytes, hub: rate with a watermark of 20,000 packets against the default",
         "most", 1.1, "x", distance.rate_ratio),
    *(
        Goal(f"64 bytes: time from tap exclusive to the reader at {rate}, p99",
             "most", 250, "us", lambda result, rate=rate: distance.p99_us(result, rate))
        for rate in distance.RATES
    ),
    Goal("64 bytes: packets that AF_XDP lost, all rounds",
         "most", 0, "packets", lambda result: _lost(result, XDP)),
    Goal("64 bytes: forwarded between veths, ringtap bridge against the kernel's",
         "least", 1.8, "x", forward.against_kernel, forward.beside),
    Goal("pool alone, 500 chunks, slowest round", "least", 150, "Mpps", _pool(500)),
    Goal("pool alone, 5,000 chunks, slowest round", "least", 100, "Mpps", _pool(5000)),
    Goal("simulated NIC, 500 chunks of 256 packets", "least", 100, "Mpps", _simulated),
    Goal(
        "record of 1500-byte packets to a tmpfs, tap against dumpcap",
        "least", 2, "x", _lossless_ratio("record", TAP_RECORD, OTHER_RECORD), _record_exclusive,
    ),
    Goal("idle: processor time of tap", "most", 0, "ticks", _idle(IDLE_TAP),
         _idle_exactly(IDLE_TAP)),
    Goal("idle: processor time of packet", "most", 0, "ticks", _idle(IDLE_PACKET),
         _idle_exactly(IDLE_PACKET)),
    Goal("send: worst deviation from the rate that was asked for", "most", 1, "%", _pacing),
    Goal("1,000 packets/s: median from tap to a sleeping reader", "most", 100, "us", _latency),
    Goal("hub: lossless rate of 16 readers against one",
         "least", 0.95, "x", lambda result: _crowd(result, (HUB, 16), (HUB, 1))),
    Goal("hub: lossless rate of 8 readers against 8 of AF_PACKET",
         "least", 2.5, "x", lambda result: _crowd(result, (HUB, 8), (PACKET, 8))),
    Goal("hub: lossless rate of 16 readers against 16 of AF_PACKET",
         "least", 4, "x", lambda result: _crowd(result, (HUB, 16), (PACKET, 16))),
    Goal("hub: 64 filters, one matches, lossless rate against AF_PACKET",
         "least", 3, "x", lambda result: readers.ratio(
             result, "filters", (HUB, 64), (PACKET, 64))),
    Goal("hub: one filter that never matches, against the XDP_DROP floor",
         "least", 0.85, "x", filters.against_floor),
    Goal("tap with a million rules of which none matches against none, 64 bytes, 65,536 flows",
         "least", 0.8, "x", shunting.against_no_rules),
    Goal("rules that one reader sets in a second", "least", 0.1, "million", shunting.set_in_a_second),
    *(
        Goal(f"rules that {words} in a second through a hub", "least", 0.1, "million", shunting.by_hub(readers))
        for readers, words in zip(shunting.HUB_READERS, ("one reader sets", "eight readers set together"))
    ),
    Goal("5 % of the flows have 80 % of the bytes: lossless rate with a cut-off against without",
         "least", 4, "x", shunting.elephants_ratio),
    Goal("recorder with a cut-off of 16 KiB: 1 if it wrote the bytes that were computed", "least", 1, "",
         shunting.written),
    Goal("hub: its processor time at full rate, 4 readers",
         "most", 3, "% of a core", hub.percent_of_core),
    Goal("hub: its processor time when idle", "most", 0, "ticks", hub.idle_ticks,
         hub.idle_exactly),
    Goal("tcpdump, 64 bytes: lossless rate by an exclusive tap against libpcap",
         "least", 1.6, "x", programs.rate_ratio("tcpdump", programs.TCPDUMP_WAYS),
         programs.beside("tcpdump", programs.TCPDUMP_WAYS)),
    Goal("dumpcap, 1500 bytes to a tmpfs: lossless rate by an exclusive tap against libpcap",
         "least", 1.2, "x", programs.rate_ratio("dumpcap", programs.DUMPCAP_WAYS),
         programs.beside("dumpcap", programs.DUMPCAP_WAYS)),
    Goal("eight tcpdumps with eight filters on one hub: lossless rate against libpcap",
         "least", 2, "x", programs.rate_ratio("eight tcpdumps", programs.EIGHT_WAYS)),
    Goal("1,000 packets/s: median from sending to a callback in immediate mode against libpcap",
         "most", 1, "x", programs.latency_ratio, programs.latency_exactly),
    *(
        Goal(text, "least", 5, "x", flows.least(*key), flows.each(*key))
        for text, key in (
            ("probe: lossless rate of 64-byte packets of 65,536 flows against the next best program",
             ("live", "lossless_pps")),
            ("probe: packets per second of processor time, the same from a file", (flows.SMALL, "pps")),
            ("probe: packets per second of processor time, a mix from a file", (flows.MIX, "pps")),
        )
    ),
    Goal("probe: flow metering in the kernel, 65,536 flows, against the XDP_DROP floor", "least", 0.5,
         "x", lambda result: meter.against_floor(result, meter.COUNTS[-1]), meter.fewer_flows),
    Goal("probe: user space's time for it", "most", 2, "% of a core", meter.cpu_percent),
    Goal("probe: memory of 1,000,000 concurrent flows, also when 10,000,000 come", "most", 256, "MiB",
         meter.mib, meter.evicted),
    Goal("hub: median from sending to a sleeping reader against libpcap's immediate mode",
         "most", 1, "x", hub.wake_ratio, hub.wake_exactly),
    Goal("libpcap program: open, filter and close over a tap against libpcap",
         "most", 3, "x", opening.ratio),
    Goal("libpcap program: change of a filter over a tap", "most", 20, "ms", opening.change_ms),
    Goal("Python, batches with numpy() from a hub: lossless rate against ringtap count", "least", 0.9, "x",
         python_bench.live_ratio(python_bench.NUMPY), python_bench.times(python_bench.NUMPY)),
    Goal("Python, batches with arrow(headers=True) from a hub: the same", "least", 0.5, "x",
         python_bench.live_ratio(python_bench.ARROW), python_bench.times(python_bench.ARROW)),
    *(
        Goal(f"Python, arrow(headers=True) from a file against {name}", "least", times, "x",
             python_bench.against(name))
        for name, times in (("scapy", 100), ("pyshark", 500))
    ),
    Goal("Python, packet by packet from a file", "least", 2, "Mpps", python_bench.packets_mpps,
         python_bench.times(python_bench.PACKETS)),
    *(
        Goal(f"capture file to Parquet, MB/s against {other.name}", "least", times, "x",
             questions.ratio("parquet", questions.PARQUET.name, other.name, "mb_per_s"))
        for other, times in ((questions.COUNT, 0.5), (questions.TSHARK, 10))
    ),
    Goal("find of one flow with cold caches against tcpdump -r of all files", "most", 1 / 500, "x",
         questions.ratio("find", questions.FIND.name, questions.TCPDUMP.name, "seconds"), questions.beside_find),
    Goal("size of indexes against the data", "most", 1, "%", questions.of_index("index_percent")),
    Goal("record --index against record, lossless rates", "least", 0.9, "x", questions.ratio(
        "record-index", questions.RECORD_INDEX, questions.RECORD, "lossless_pps")),
    Goal("index of files that others wrote", "least", 1, "GB/s of a core", questions.of_index("gb_per_s")),
]  # fmt: skip


def evaluate(result: dict) -> list[dict]:
    """Every goal with the figure of this result and the verdict: met, MISSED or not measured."""
    return [_verdict(goal, goal.figure(result), goal.beside(result)) for goal in GOALS]


def _verdict(goal: Goal, figure: float | None, beside: str) -> dict:
    if figure is None:
        verdict = "not measured"
    elif goal.bound == "least":
        verdict = "met" if figure >= goal.number else "MISSED"
    else:
        verdict = "met" if figure <= goal.number else "MISSED"
    return {
        "goal": goal.text,
        "bound": goal.bound,
        "number": goal.number,
        "unit": goal.unit,
        "figure": figure,
        "beside": beside,
        "verdict": verdict,
    }
