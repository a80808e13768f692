# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks of a paper's claims: rules evaluated on rows, never typed by hand.

Invariants
- What was not measured is not judged, and never holds.
- A selector or a rule that means nothing is an error, not a check that fails.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
#: Rows of each data set of a page, by its name.
Tables = dict[str, list[Row]]

REDUCE: dict[str, Callable[[list[float]], float]] = {
    "sum": sum, "median": statistics.median, "most": max, "least": min,
}  # fmt: skip
#: Rules: how far a value is on the right side of its bound; below 0 it fails.
RULES: dict[str, Callable[[float, float, float], float]] = {
    "at most": lambda value, bound, _: bound - value,
    "at least": lambda value, bound, _: value - bound,
    "within": lambda value, bound, tolerance: tolerance - abs(value - bound),
}


class PageError(Exception):
    """The data of a page contradict themselves."""


def select(tables: Tables, wanted: dict[str, Any]) -> list[Row]:
    """Rows of a data set, or of several, whose fields have these values; a list allows any of its values."""
    names = wanted["data"] if isinstance(wanted["data"], list) else [wanted["data"]]
    if unknown := [name for name in names if name not in tables]:
        raise PageError(f"there are no data {unknown[0]!r}")
    fields = {key: each if isinstance(each, list) else [each] for key, each in wanted.items() if key not in NOT_FIELDS}
    rows = [row for name in names for row in tables[name]]
    return [row for row in rows if all(row.get(key) in each for key, each in fields.items())]


#: Words of a selector that are no fields of a row.
NOT_FIELDS = ("data", "value", "reduce")


def values(tables: Tables, wanted: float | dict[str, Any]) -> list[float]:
    """The numbers that a selector names: a number itself, or a field of the selected rows."""
    if not isinstance(wanted, dict):
        return [float(wanted)]
    found = [float(row[wanted["value"]]) for row in select(tables, wanted) if row.get(wanted["value"]) is not None]
    if found and "reduce" in wanted:
        return [REDUCE[wanted["reduce"]](found)]
    return found


@dataclass(frozen=True)
class Verdict:
    """One check and its outcome: the value that is nearest to failing, and its bound."""

    text: str
    rule: str
    holds: bool | None
    value: float = 0.0
    bound: float = 0.0
    count: int = 0

    @property
    def word(self) -> str:
        """In the page."""
        return {True: "holds", False: "**does not hold**", None: "not measured"}[self.holds]


def judge(tables: Tables, check: dict[str, Any]) -> Verdict:
    """Evaluates one check of a page."""
    known = {"text", "left", "is", "right", "factor", "tolerance"}
    if check["is"] not in RULES or set(check) - known:
        raise PageError(f"check {check['text']!r}: {check['is']!r} is no rule, or an unknown key is in it")
    left, right = values(tables, check["left"]), values(tables, check["right"])
    factor, tolerance = check.get("factor", 1.0), check.get("tolerance", 0.0)
    rule = check["is"] + (f" {factor:g} times" if factor != 1 else "") + (f" {tolerance:g} of" if tolerance else "")
    if not left or not right:
        return Verdict(check["text"], rule, None)
    if len(right) not in (1, len(left)):
        raise PageError(f"check {check['text']!r}: {len(left)} values on the left, {len(right)} on the right")
    bounds = [factor * one for one in (right * len(left) if len(right) == 1 else right)]
    margins = [RULES[check["is"]](value, bound, tolerance) for value, bound in zip(left, bounds, strict=True)]
    worst = min(range(len(left)), key=margins.__getitem__)
    return Verdict(check["text"], rule, margins[worst] >= 0, left[worst], bounds[worst], len(left))


def headline(verdicts: list[Verdict]) -> str:
    """What the first line of a page says."""
    outcomes = [one.holds for one in verdicts]
    good, bad, missing = (outcomes.count(each) for each in (True, False, None))
    if not good and not bad:
        return "not measured yet"
    counted = f": {good} of {len(verdicts)} checks hold" + (f", {missing} not measured" if missing else "")
    if bad:
        return "the claim does not hold for Ringtap in full" + counted
    return "the claim holds for Ringtap" + (" where it was measured" + counted if missing else "")
