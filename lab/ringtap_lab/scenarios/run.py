# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the parts of one run share: programs, and what went wrong.

Invariants
- A measurement that failed is on record as a problem; the run goes on and ends with non-zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ringtap_lab.scenarios.contenders import Programs


@dataclass
class Run:
    """One run."""

    programs: Programs
    problems: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Tells the user, at once."""
        print(text, flush=True)

    def problem(self, text: str) -> None:
        """Puts on record that an answer was wrong or is missing."""
        self.problems.append(text)
        self.say(f"PROBLEM  {text}")
