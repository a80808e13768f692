# SPDX-License-Identifier: MIT OR Apache-2.0
"""Search of the highest load that meets a goal, after MLRsearch (RFC 9971), in its terms.

Invariants
- Trials at one intended load count together; all trials of a search are of the same length.
- The load of a trial is what the sender's device took, of several trials the least.
- A relevant lower bound is below the relevant upper bound, however trials contradict each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

#: Loads that are tried for one goal, at most.
STEPS = 7
#: Later searches look first this far around what earlier ones found.
NEIGHBOURHOOD = 1.12
#: A sender that sends less than this of what it was asked for has no more.
SHORT = 0.97


@dataclass(frozen=True)
class Goal:
    """What a load must meet; by default RFC 2544's throughput: one trial, in which nothing is lost."""

    #: Goal loss ratio: a trial that loses more is a high-loss trial.
    loss: float = 0.0
    #: Goal exceed ratio: part of the trials that may be high-loss trials.
    exceed: float = 0.0
    #: Goal duration sum, in trials: so many decide, fewer only if the rest cannot change the answer.
    trials: int = 1
    #: Goal width: the search ends when the relevant bounds are this close, relative to the upper one.
    width: float = 0.04

    def mistake(self) -> str:
        """Why this cannot be a goal; empty if it can."""
        good = 0 <= self.loss < 1 and 0 <= self.exceed < 1 and 0 < self.width < 1 and 1 <= self.trials <= 1000
        return "" if good else "loss and exceed are from 0 to below 1, width is between 0 and 1, trials are 1 to 1000"


@dataclass
class Load:
    """All trials at one intended load."""

    sent_pps: float
    delivered_pps: float
    short: bool
    losses: list[float]

    def allowed(self, goal: Goal) -> tuple[float, int]:
        """High-loss trials that the goal allows, and trials that decide."""
        whole = max(len(self.losses), goal.trials)
        # In binary, 0.29 * 100 is a little less than 29.
        return whole * goal.exceed + 1e-9, whole

    def high(self, goal: Goal) -> int:
        """Number of high-loss trials."""
        return sum(loss > goal.loss for loss in self.losses)

    def is_upper(self, goal: Goal) -> bool:
        """Whether the load fails the goal, whatever trials are still to come."""
        return self.high(goal) > self.allowed(goal)[0]

    def is_lower(self, goal: Goal) -> bool:
        """Whether the load meets the goal, even if all trials still to come are high-loss trials."""
        allowed, whole = self.allowed(goal)
        return whole - len(self.losses) + self.high(goal) <= allowed

    def throughput(self, goal: Goal) -> float:
        """Conditional throughput: what is delivered in the worst trial that the goal does not allow to be worse."""
        allowed, whole = self.allowed(goal)
        counted = sorted(self.losses)[: max(1, whole - math.floor(allowed))]
        return self.sent_pps * (1 - counted[-1])


class Search:
    """One search: ask for `rate`, measure, `tell` the outcome, until `rate` is None."""

    def __init__(self, hint: float | None, goals: tuple[Goal, ...] = (Goal(),)) -> None:
        self._hint, self._goals = hint, goals
        self._loads: dict[str, Load] = {}
        self._rate: str | None = _pps(hint * NEIGHBOURHOOD) if hint else "max"

    @property
    def rate(self) -> str | None:
        """The rate to try next, as the sender reads it."""
        return self._rate

    def tell(self, sent_pps: float, delivered_pps: float, lossless: bool) -> None:
        """Takes a trial's rates, and whether nothing was lost."""
        assert self._rate is not None
        # Of several readers, another than the least may have lost some.
        loss = 0.0 if lossless else max(1 - delivered_pps / sent_pps, 1e-12)
        short = self._rate == "max" or sent_pps < SHORT * float(self._rate.removesuffix("pps"))
        one = self._loads.setdefault(self._rate, Load(sent_pps, delivered_pps, short, []))
        one.sent_pps, one.delivered_pps = min(one.sent_pps, sent_pps), min(one.delivered_pps, delivered_pps)
        one.losses.append(loss)
        self._rate = next((rate for at, goal in enumerate(self._goals, 1) if (rate := self._next(goal, at))), None)

    def bounds(self, goal: Goal) -> tuple[Load | None, Load | None]:
        """The relevant lower and the relevant upper bound; the search ends between them."""
        order = sorted(self._loads.values(), key=lambda one: one.sent_pps)
        upper = next((one for one in order if one.is_upper(goal)), None)
        below = [one for one in order if one.is_lower(goal) and (upper is None or one.sent_pps < upper.sent_pps)]
        return (below[-1] if below else None), upper

    def _next(self, goal: Goal, at: int) -> str | None:
        """The next load for a goal; None if its search has ended."""
        rate = self._rate if self._undecided(self._rate, goal) else self._between(goal, at)
        # A sender that sends something else than it was asked for would be asked again and again.
        return rate if rate not in self._loads or self._undecided(rate, goal) else None

    def _undecided(self, rate: str | None, goal: Goal) -> bool:
        one = self._loads.get(rate or "")
        return one is not None and not one.is_lower(goal) and not one.is_upper(goal)

    def _between(self, goal: Goal, at: int) -> str | None:
        lower, upper = self.bounds(goal)
        if len(self._loads) >= STEPS * at:
            return None
        if lower and upper:
            near = upper.sent_pps - lower.sent_pps <= goal.width * upper.sent_pps
            return None if near else _pps(math.sqrt(lower.sent_pps * upper.sent_pps))
        if lower:
            return None if lower.short else _pps(lower.sent_pps * 1.3)
        if not upper:
            return None
        if self._hint and upper.sent_pps > self._hint:
            return _pps(self._hint / NEIGHBOURHOOD)
        # What got through in spite of the loss is near the answer, seldom above it.
        return _pps(min(upper.delivered_pps, upper.sent_pps * 0.8))

    def result(self) -> dict[str, Any]:
        """Lossless and lossy rate of the first goal; `limited`: the sender had no more; the bounds of all goals."""
        lower, upper = self.bounds(self._goals[0])
        return {
            "lossless_pps": lower.throughput(self._goals[0]) if lower else 0.0,
            "lossy_pps": upper.sent_pps if upper else None,
            "limited": bool(lower and not upper and lower.short),
            "goals": [self._of(goal) for goal in self._goals],
        }

    def _of(self, goal: Goal) -> dict[str, float | None]:
        lower, upper = self.bounds(goal)
        return {
            "loss": goal.loss,
            "exceed": goal.exceed,
            "relevant_lower_bound_pps": lower.sent_pps if lower else None,
            "relevant_upper_bound_pps": upper.sent_pps if upper else None,
            "conditional_throughput_pps": lower.throughput(goal) if lower else None,
        }


def _pps(rate: float) -> str:
    return f"{max(1.0, rate):.0f}pps"
