# SPDX-License-Identifier: MIT OR Apache-2.0
"""Two records compared: ratio of each case's figure with its interval of 95 %.

The ratio is that of geometric means; its interval is Welch's, of the logarithms, by Student's
distribution. An interval that holds 1 is "no difference shown".
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from ringtap_lab.formatters.summary import KEYS, Entry, entries
from ringtap_lab.formatters.tables import grid
from ringtap_lab.manager.record import Record

#: Student's quantiles for 97.5 %, by degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
           2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)
NORMAL = 1.960


@dataclass(frozen=True)
class Interval:
    """The ratio second to first, and where it lies with 95 %."""

    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """In words."""
        if self.low > 1:
            return "second is higher"
        return "second is lower" if self.high < 1 else "no difference shown"


def interval(first: list[float], second: list[float]) -> Interval | None:
    """Compares two samples; None if one has fewer than two values, or a value that is not above 0."""
    if min(len(first), len(second)) < 2 or min([*first, *second]) <= 0:
        return None
    logs = [[math.log(value) for value in values] for values in (first, second)]
    parts = [statistics.variance(one) / len(one) for one in logs]
    difference = statistics.fmean(logs[1]) - statistics.fmean(logs[0])
    error = math.sqrt(sum(parts))
    if error == 0:
        return Interval(math.exp(difference), math.exp(difference), math.exp(difference))
    freedom = sum(parts) ** 2 / sum(part**2 / (len(one) - 1) for part, one in zip(parts, logs, strict=True))
    reach = quantile(freedom) * error
    return Interval(*(math.exp(difference + one) for one in (0, -reach, reach)))


def quantile(freedom: float) -> float:
    """Student's quantile; between whole degrees of freedom that of the lower, which is wider."""
    at = max(1, math.floor(freedom))
    return STUDENT[at - 1] if at <= len(STUDENT) else NORMAL


def text(first: Record, second: Record) -> str:
    """All cases that both records have, as a page."""
    heads = [one.head() for one in (first, second)]
    known = [{row["key"]: entry for row, entry in _keyed(one)} for one in (first, second)]
    table = [["case", "figure", "first", "second", "ratio (95 %)", ""]]
    for key, before in known[0].items():
        after = known[1].get(key)
        if after is not None:
            table.append(_line(before, after))
    lines = [f"# Comparison of two records of `{heads[0]['battery']}`\n"]
    lines += [f"- first: {heads[0]['date']}, {heads[0]['host']}", f"- second: {heads[1]['date']}, {heads[1]['host']}"]
    alone = len(set(known[0]) ^ set(known[1]))
    lines += ["", grid(table) if len(table) > 1 else "The records have no case in common."]
    lines += [f"\n{alone} cases are in one record only."] if alone else []
    return "\n".join(lines) + "\n"


def _keyed(record: Record) -> list[tuple[dict[str, str], Entry]]:
    rows = record.rows()
    first = {row["key"]: row for row in rows}
    return list(zip(first.values(), entries(rows), strict=True))


def _line(before: Entry, after: Entry) -> list[str]:
    key, figure, factor = KEYS[before.case["method"]]
    found = interval(before.values(key), after.values(key))
    medians = [f"{spread[0] * factor:.3f}" if (spread := one.spread(key)) else "–" for one in (before, after)]
    if found is None:
        words = ["–", f"too few good repetitions ({len(before.good)} and {len(after.good)})"]
    else:
        words = [f"{found.ratio:.3f} ({found.low:.3f} to {found.high:.3f})", found.verdict]
    return [f"{before.contender}, {before.group}", figure, *medians, *words]
