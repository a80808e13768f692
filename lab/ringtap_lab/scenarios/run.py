# SPDX-License-Identifier: MIT OR Apache-2.0
"""What all scenarios of one run share: settings, programs, and what went wrong.

Invariants
- A measurement that failed is on record as a problem; the run goes on and ends with non-zero.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

from ringtap_lab.scenarios import contenders, figures
from ringtap_lab.scenarios.contenders import Contender, Programs
from ringtap_lab.scenarios.options import Settings
from ringtap_lab.scenarios.parse import ReportError
from ringtap_lab.scenarios.tool import ToolError


@dataclass
class Run:
    """One run."""

    settings: Settings
    programs: Programs
    problems: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Tells the user, at once."""
        print(text, flush=True)

    def chosen(self, among: list[Contender]) -> list[Contender]:
        """The contenders that the user wants: all, unless some of them are named."""
        named = [one for one in among if one.name in self.settings.only]
        return named or list(among)

    def entry(self, contender: Contender) -> dict:
        """What a result says of a contender in any scenario."""
        missing = self.programs.missing(contender)
        return {
            "command": self.programs.fill(contender.command),
            "note": contender.note,
            "missing": missing,
        }

    def absent(self) -> list[str]:
        """Programs of other projects that this machine has not."""
        every = contenders.IDLE
        missing = (self.programs.missing(one) for one in every)
        return sorted({one for one in missing if one})

    def attempt(self, contender: Contender, work: Callable[[], dict]) -> dict | None:
        """One measurement; None, and a problem on record, if it could not be made.

        One program that fails must not hide the others' figures.
        """
        if self.programs.missing(contender):
            return None
        try:
            row = work()
        except (ToolError, ReportError, subprocess.SubprocessError, OSError) as error:
            self.problem(f"{contender.name}: {error}")
            return None
        output = row.pop("output", "")
        for one in row.get("problems", []):
            self.problem(f"{contender.name}: {one}; its output: {output.strip()[-400:]!r}")
        return row

    def by_turns(
        self,
        rounds: int,
        among: list[Contender],
        work: Callable[[Contender], dict],
        tell: Callable[[str, dict], str],
        keys: tuple[str, ...],
    ) -> dict[str, dict]:
        """All rounds of all contenders: by name, what was measured and the spread of `keys`.

        `tell` makes the user's line of a round's name and its figures.
        """
        rows: dict[str, list[dict]] = {one.name: [] for one in among}
        for number in range(rounds):
            for one in among:
                row = self.attempt(one, lambda one=one: work(one))
                if row is None:
                    continue
                rows[one.name].append({"round": number, **row})
                self.say(tell(f"round {number + 1}/{rounds}  {one.name:<24}", row))
        return {
            one.name: {
                **self.entry(one),
                "rounds": rows[one.name],
                "summary": figures.summary(rows[one.name], keys),
            }
            for one in among
        }

    def problem(self, text: str) -> None:
        """Puts on record that an answer was wrong or is missing."""
        self.problems.append(text)
        self.say(f"PROBLEM  {text}")
