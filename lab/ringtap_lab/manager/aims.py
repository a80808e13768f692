# SPDX-License-Identifier: MIT OR Apache-2.0
"""Aims: figures that the project wants to reach, as a battery names them, and what the rows of a record say of each.

Invariants
- An aim whose figure was not measured is not met.
- Two figures are divided repetition by repetition: a pair met the same state of the machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ringtap_lab.manager.inventory import InventoryError

Rows = list[dict[str, Any]]
#: Contenders that others are compared with: the kernel drops each packet at once; nothing captures. By figure, the
#: contender above which it is measured, and the rate from which it is computed.
FLOOR, NOTHING = "XDP_DROP floor", "nothing"
BASELINES = {"ns_above_floor": (FLOOR, "delivered_pps"), "ns_above_nothing": (NOTHING, "offered_pps")}
#: Units in which figures are shown, by the end of their name: factor, unit.
UNITS = {"gb_per_s": (1.0, "GB/s"), "mb_per_s": (1.0, "MB/s"), "_ns": (1e-3, "µs"),
         "_pps": (1e-6, "Mpps"), "mpps": (1.0, "Mpps"), "_percent": (1.0, "%"), "_kib": (1 / 1024, "MiB"),
         "_bytes": (1.0, "bytes"), "_s": (1.0, "s")}  # fmt: skip

#: Of several figures of an aim, so many are told, the worst first.
WORST = 3


def unit_of(figure: str) -> tuple[float, str]:
    """Factor and unit of a figure by its name; an empty unit if the name says none."""
    return next((unit for end, unit in UNITS.items() if figure.endswith(end)), (1.0, ""))


def number(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@dataclass(frozen=True)
class Aim:
    """One figure to reach."""

    text: str
    figure: str
    #: Cases whose figure counts, and those by whose figure it is divided: dimensions of a case with their values.
    of: dict[str, Any]
    by: dict[str, Any] | None = None
    #: The same, whose figure is subtracted.
    above: dict[str, Any] | None = None
    #: Another figure of the same row by which it is divided.
    per: str = ""
    least: float | None = None
    most: float | None = None
    #: Each repetition must reach it, and none may be at fault; else the median.
    every: bool = False
    #: The command that measures it fails if it is not met.
    promise: bool = False


@dataclass(frozen=True)
class Verdict:
    """An aim beside what was measured."""

    aim: Aim
    #: By what was compared, the worst first; empty if nothing was measured.
    figures: list[tuple[str, float]] = field(default_factory=list)

    @property
    def word(self) -> str:
        """`met`, `MISSED` or `not measured`."""
        if not self.figures:
            return "not measured"
        least, most = self.aim.least, self.aim.most
        met = all((least is None or one >= least) and (most is None or one <= most) for _, one in self.figures)
        return "met" if met else "MISSED"

    def cells(self) -> list[str]:
        """What was wanted and what was measured, in the unit of the figure."""
        aim = self.aim
        factor, unit = (1.0, "x") if aim.by or aim.per else unit_of(aim.figure)
        ends_at = [("≥", aim.least), ("≤", aim.most)]
        bounds = [f"{sign} {number(value * factor)} {unit}".strip() for sign, value in ends_at if value is not None]
        told = [f"{number(value * factor)} {unit}".strip() + f" ({name})" * (len(self.figures) > 1)
                for name, value in self.figures[:WORST]]  # fmt: skip
        told += [f"{len(self.figures) - WORST} others"] * (len(self.figures) > WORST)
        return [aim.text, " and ".join(bounds), "; ".join(told) or "–", self.word]


HEADING = ["aim", "wanted", "measured", ""]


def table(aims: tuple[Aim, ...], rows: Rows) -> list[list[str]]:
    """All aims with their verdicts, below a heading."""
    known = derived(rows)
    return [HEADING, *(verdict(aim, known).cells() for aim in aims)]


def broken(aims: tuple[Aim, ...], rows: Rows) -> list[str]:
    """Promises that are missed or not measured."""
    known = derived(rows)
    return [aim.text for aim in aims if aim.promise and verdict(aim, known).word != "met"]


def parse(entries: Any, where: str) -> tuple[Aim, ...]:
    """Reads the `[[aim]]` tables of a battery."""
    try:
        found = tuple(Aim(**entry) for entry in entries)
    except TypeError as error:
        raise InventoryError(f"{where}: aim: {error}") from None
    for aim in found:
        if aim.least is None and aim.most is None:
            raise InventoryError(f"{where}: aim {aim.text!r}: needs `least` or `most`")
    return found


def verdict(aim: Aim, rows: Rows) -> Verdict:
    """What rows, as `derived` gives them, say of an aim. Of several cases, the one farthest from it comes first."""
    worst: Callable[[Any], Any] = max if aim.least is None else min
    middle = worst if aim.every else statistics.median
    found: list[tuple[str, float]] = []
    for mine in _cases(rows, aim.of):
        if aim.every and any(row["problems"] for row in mine.values()):
            return Verdict(aim)
        figures = {at: value for at, row in mine.items() if (value := _value(row, aim)) is not None}
        if not figures:
            return Verdict(aim)
        if aim.by is None and aim.above is None:
            found.append((_name(mine), middle(figures.values())))
            continue
        for other in _cases(rows, aim.by or aim.above or {}):
            theirs = {at: value for at, row in other.items() if (value := _value(row, aim)) is not None}
            pairs = [(value, theirs[at]) for at, value in figures.items() if at in theirs]
            compared = [one / two for one, two in pairs if two] if aim.by else [one - two for one, two in pairs]
            if compared:
                found.append((_name(other), middle(compared)))
    return Verdict(aim, sorted(found, key=lambda one: one[1], reverse=worst is max))


def _cases(rows: Rows, wanted: dict[str, Any]) -> Iterator[dict[int, dict[str, Any]]]:
    """Rows of each case that has these values, by repetition."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows:
        if all(row["case"].get(key) in (value if isinstance(value, list) else [value])
               for key, value in wanted.items()):  # fmt: skip
            found.setdefault(row["key"], {})[row["repetition"]] = row
    yield from found.values()


def _name(rows: dict[int, dict[str, Any]]) -> str:
    row = next(iter(rows.values()))
    beside = row["case"].get("beside")
    return ", ".join([row["case"]["contender"], *([f"beside {beside}"] if beside else []), row["group"]])


def _value(row: dict[str, Any], aim: Aim) -> float | None:
    value = None if row["problems"] else row.get(aim.figure)
    if value is None or not aim.per:
        return value
    return value / row[aim.per] if row.get(aim.per) else None


def derived(rows: Rows) -> Rows:
    """Rows with the nanoseconds that a packet took longer than with a baseline at full speed, by repetition."""
    found = [dict(row) for row in rows]
    for name, (baseline, rate) in BASELINES.items():
        times = {
            (row["group"], row["repetition"]): 1e9 / row[rate] for row in found
            if row["case"]["contender"] == baseline and not row["problems"] and row.get(rate)
            and row["case"]["rate"] == "max" and row["case"]["method"] == "rate"
        }  # fmt: skip
        for row in found:
            least = times.get((row["group"], row["repetition"]))
            if least is not None and row["case"]["contender"] != baseline and row.get(rate) and not row["problems"]:
                row[name] = 1e9 / row[rate] - least
    return found
