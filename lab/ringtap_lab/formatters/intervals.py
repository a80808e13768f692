# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ratio of two samples with its interval of 95 %.

The ratio is that of geometric means; its interval is Welch's, of the logarithms, by Student's
distribution. Ratios of pairs are compared with ones.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

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
