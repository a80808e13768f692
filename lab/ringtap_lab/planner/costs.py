# SPDX-License-Identifier: MIT OR Apache-2.0
"""Costs per packet, byte, flow and reader, each with its source.

Invariants
- A cost comes from trials in which nothing was lost and that are not at fault.
- What a results file does not hold comes from the project's own results, and says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ringtap_lab import root
from ringtap_lab.manager.record import Record, RecordError
from ringtap_lab.planner.quantities import PlanError

Pick = Callable[[list["Point"]], dict[int, float]]
#: Batteries of `ringtap-lab bench` that hold costs.
SECTIONS = ("capture", "readers", "record")
CAPTURE, HUB, RECORDER = "tap exclusive", "ringtap hub", "ringtap record (tap exclusive)"


@dataclass(frozen=True)
class Cost:
    """One number that a plan rests on."""

    key: str
    what: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Point:
    """A rate that a contender took without loss."""

    contender: str
    size: int
    readers: int
    pps: float


#: Costs that no results file holds: figures of the documents.
DOCUMENTED = (
    Cost("hub_ns", "hub, per packet", 18.0, "ns", "docs/performance.md: 5.0 % of a core at 2.7 Mpps"),
    Cost("probe_ns", "probe, per packet", 385.0, "ns", "docs/performance.md: 2.60 Mpps of 65,536 flows"),
    Cost("doubling_ns", "probe, per packet and doubling of the flows", 19.5, "ns",
         "docs/performance.md: 2.60 and 1.90 Mpps of 65,536 and 10,000,000 flows"),
    Cost("flow_bytes", "probe, per flow", 370.0, "bytes", "docs/sizing.md"),
    Cost("disk_rate", "one disk", 1.02e9, "bytes/s", "docs/performance.md: record --direct-io"),
    Cost("index_part", "index, per byte of the recording", 0.0018, "bytes", "docs/measurements.md: the lab's mix"),
)  # fmt: skip


@dataclass(frozen=True)
class Costs:
    """All costs, and how far the measurements reach."""

    each: dict[str, Cost]
    #: Least and largest frame, and the most readers, that were measured.
    sizes: tuple[int, int]
    readers: int
    #: How far the line of packet and byte misses the measured rates, at most.
    misses: float
    recorded_size: int

    @property
    def values(self) -> dict[str, float]:
        """The numbers alone."""
        return {key: cost.value for key, cost in self.each.items()}


def load(results: Path | None) -> Costs:
    """The costs of a record, or of a folder of records; those of the project for what it lacks."""
    default = root.RESULTS / "latest"
    names = {path: _shown(path) for path in (results or default, default)}
    given, own = _points(results or default), _points(default) if results else []
    found: dict[str, Cost] = {}
    line, name = _either(given, own, names, lambda points: _sizes(points, CAPTURE))
    if len(line) < 2:
        raise PlanError(f"{name}: no rates without loss of {CAPTURE!r} at two frame sizes")
    fit = statistics.linear_regression(list(line), [1e9 / pps for pps in line.values()])
    span = f"{name}: {CAPTURE}, {min(line)} to {max(line)} bytes"
    found["packet_ns"] = Cost("packet_ns", "capture, per packet", fit.intercept, "ns", span)
    found["byte_ns"] = Cost("byte_ns", "capture, per byte", fit.slope, "ns", span)
    misses = max(abs((fit.intercept + fit.slope * size) * pps / 1e9 - 1) for size, pps in line.items())
    crowd, name = _either(given, own, names, _crowd)
    if not crowd:
        raise PlanError(f"{name}: no rates without loss of {HUB!r}")
    most = max(crowd)
    # All readers shared one core, so none took more of a packet's time than its part.
    found["reader_ns"] = Cost("reader_ns", "reader that only looks at headers, per packet, at most",
                              1e9 / crowd[most] / most, "ns", f"{name}: {most} readers on a core")  # fmt: skip
    recorded, name = _either(given, own, names, lambda points: _sizes(points, RECORDER))
    if not recorded:
        raise PlanError(f"{name}: no rates without loss of {RECORDER!r}")
    size = max(recorded)
    found["record_ns"] = Cost("record_ns", f"recorder, per packet of up to {size} bytes", 1e9 / recorded[size], "ns",
                              f"{name}: {RECORDER}, to a tmpfs")  # fmt: skip
    found |= {cost.key: cost for cost in DOCUMENTED}
    return Costs(found, (min(line), max(line)), most, misses, size)


def _shown(path: Path) -> str:
    return str(path.relative_to(root.ROOT)) if path.is_relative_to(root.ROOT) else str(path)


def _either(given: list[Point], own: list[Point], names: dict[Path, str], pick: Pick) -> tuple[dict[int, float], str]:
    """What the given points hold, else our own; and the name of the file."""
    first, *second = names.values()
    found = pick(given)
    return (found, first) if found or not own else (pick(own), second[0] if second else first)


def _sizes(points: list[Point], contender: str) -> dict[int, float]:
    each = [one for one in points if one.contender == contender and one.readers == 1]
    return {size: statistics.median(one.pps for one in each if one.size == size)
            for size in sorted({one.size for one in each})}  # fmt: skip


def _crowd(points: list[Point]) -> dict[int, float]:
    each = [one for one in points if one.contender == HUB]
    return {count: statistics.median(one.pps for one in each if one.readers == count)
            for count in sorted({one.readers for one in each})}  # fmt: skip


def _points(path: Path) -> list[Point]:
    try:
        parts = [path / name for name in SECTIONS if (path / name).exists()] or [path]
        found = [point for part in parts for point in _of_record(Record(part))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecordError) as error:
        raise PlanError(f"{path}: neither a record nor results of ringtap-lab bench: {error}") from None
    if not found:
        raise PlanError(f"{path}: holds no trial without loss of {CAPTURE}, {HUB} or {RECORDER}")
    return found


def _of_record(record: Record) -> Iterator[Point]:
    """Searches of the highest rate, and trials at full speed without load that lost nothing."""
    record.head()
    for row in record.rows():
        case, pps = row["case"], row.get("lossless_pps") or 0.0
        if not pps and row.get("lost") == 0 and case["rate"] == "max":
            pps = row["delivered_pps"]
        wanted = case["contender"] in (CAPTURE, HUB, RECORDER) and case["load"] == "none" and case["cores"] == 1
        wanted = wanted and case.get("filters", "none") == "none" and not case.get("file")
        if pps and wanted and not row["problems"]:
            yield Point(case["contender"], case["size"], case["readers"], pps)
