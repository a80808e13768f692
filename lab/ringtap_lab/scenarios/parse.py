# SPDX-License-Identifier: MIT OR Apache-2.0
"""What each tool says of itself at its end, read into one shape.

Invariants
- A report that cannot be read is an error, never a zero.
- `lost` is the tool's own claim; the caller compares it with what was offered.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


class ReportError(Exception):
    """A tool's last words are not what they should be."""


@dataclass(frozen=True)
class Report:
    """One tool's own account: packets that reached its user, and packets it says it lost."""

    delivered: int
    lost: int
    #: What the tool says it was offered, if it says so.
    offered: int | None = None
    #: Whether its counters balances, if it keeps one.
    balanced: bool | None = None
    #: Packets that a rule withheld, as its user wished.
    shunted: int = 0


def last_json(text: str, key: str, tool: str) -> dict:
    """The last line that is a JSON object with this key."""
    for line in reversed(text.splitlines()):
        if line.lstrip().startswith("{"):
            try:
                found = json.loads(line)
            except json.JSONDecodeError:
                continue
            if key in found:
                return found
    raise ReportError(f"{tool}: no JSON line with {key!r} in its output: {text.strip()[-300:]!r}")


def ringtap(text: str) -> Report:
    """The last object of `--json`: the final counters over all lanes."""
    counters = last_json(text, "balanced", "ringtap")
    return Report(
        delivered=counters["delivered"],
        lost=sum(counters["dropped"].values()),
        offered=counters["offered"],
        balanced=counters["balanced"],
        shunted=counters.get("shunted", 0),
    )


def sender(text: str) -> tuple[int, int]:
    """Packets that the device took, and nanoseconds, from the final line of `ringtap send`."""
    final = last_json(text, "sent", "ringtap send")
    if not final["final"] or final["elapsed_ns"] <= 0:
        raise ReportError(f"ringtap send: no final line in its output: {text.strip()[-300:]!r}")
    return final["sent"], final["elapsed_ns"]
