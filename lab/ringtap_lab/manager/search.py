# SPDX-License-Identifier: MIT OR Apache-2.0
"""Search of the highest rate at which nothing is lost, in few trials."""

from __future__ import annotations

import math

#: The search ends when the lossless and the lossy rate are this close.
PRECISION = 1.04
STEPS = 7
#: Later searches look first this far around what earlier ones found.
NEIGHBOURHOOD = 1.12


class Search:
    """One search: ask for `rate`, measure, `tell` the outcome, until `rate` is None."""

    def __init__(self, hint: float | None) -> None:
        self._hint = hint
        self._good, self._bad = 0.0, math.inf
        self._limited = False
        self._trials = 0
        self._rate = hint * NEIGHBOURHOOD if hint else None
        self._done = False

    @property
    def rate(self) -> str | None:
        """The rate to try next, as the sender reads it."""
        if self._done:
            return None
        return f"{self._rate:.0f}pps" if self._rate else "max"

    def tell(self, sent_pps: float, delivered_pps: float, lossless: bool) -> None:
        """Takes a trial's rates, and whether nothing was lost."""
        self._trials += 1
        self._done = self._trials >= STEPS
        if lossless:
            self._good = max(self._good, sent_pps)
            # The sender gave all it had, and it was not enough.
            if self._rate is None or sent_pps < self._rate * 0.97:
                self._limited = self._done = True
                return
        else:
            self._bad = min(self._bad, sent_pps)
        if self._good and self._bad / self._good < PRECISION:
            self._done = True
            return
        self._rate = self._next(delivered_pps)

    def _next(self, delivered_pps: float) -> float:
        if self._good and self._bad < math.inf:
            return math.sqrt(self._good * self._bad)
        if self._good:
            return self._good * 1.3
        if self._hint and self._bad > self._hint:
            return self._hint / NEIGHBOURHOOD
        # What got through in spite of the loss is near the answer, seldom above it.
        return min(delivered_pps, self._bad * 0.8)

    def result(self) -> dict[str, float | bool | None]:
        """The lossless and the lossy rate; `limited`: the sender had no more."""
        bad = self._bad if self._bad < math.inf else None
        return {"lossless_pps": self._good, "lossy_pps": bad, "limited": self._limited}
