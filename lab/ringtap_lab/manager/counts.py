# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a contender says that it counted, read from its output by the patterns of its description.

Invariants
- A count that cannot be read is an error, never a zero.
- A claim of the contender is compared with what was offered; it is never taken for it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any


class CountError(Exception):
    """A contender's last words are not what they should be."""


@dataclass(frozen=True)
class Counts:
    """Patterns by name of the count: terms that are added, or subtracted if they begin with `-`.

    With `json`, a term is a path into the last JSON line that has this key (`dropped.*` adds all);
    else it is a regular expression whose last match counts."""

    terms: dict[str, tuple[str, ...]]
    json: str = ""

    def read(self, text: str) -> dict[str, int]:
        """All counts of an output."""
        found = last_json(text, self.json) if self.json else {}
        return {name: sum(self._term(term, text, found) for term in terms) for name, terms in self.terms.items()}

    def _term(self, term: str, text: str, found: dict[str, Any]) -> int:
        sign, pattern = (-1, term[1:]) if term.startswith("-") else (1, term)
        return sign * (by_path(found, pattern) if self.json else by_pattern(text, pattern))


def last_json(text: str, key: str) -> dict[str, Any]:
    """The last line that is a JSON object with this key."""
    for line in reversed(text.splitlines()):
        if line.lstrip().startswith("{"):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if key in found:
                return dict(found)
    raise CountError(f"no JSON line with {key!r} in its output: {text.strip()[-300:]!r}")


def by_path(found: Any, path: str) -> int:
    """The number at a path of keys; `*` adds the values of all keys, `?` at the end allows that it is missing."""
    key, _, rest = path.partition(".")
    try:
        if key == "*":
            return sum(by_path(value, rest) if rest else number(value) for value in found.values())
        if key.endswith("?") and key[:-1] not in found:
            return 0
        value = found[key.removesuffix("?")]
        return by_path(value, rest) if rest else number(value)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise CountError(f"no count {path!r} in its report") from None


def number(value: Any) -> int:
    """A count as the kernel could have counted it; raises ValueError for anything else."""
    found = int(value)
    if not 0 <= found < 1 << 64:
        raise ValueError("a count has 64 bits")
    return found


def by_pattern(text: str, pattern: str) -> int:
    """The number of the last match."""
    found = re.findall(pattern, text, re.MULTILINE)
    if not found:
        raise CountError(f"nothing like {pattern!r} in its output: {text.strip()[-300:]!r}")
    try:
        return number(re.sub("[',]", "", found[-1]))
    except ValueError:
        raise CountError(f"what matches {pattern!r} in its output is no count: {found[-1][:40]!r}") from None


def figure(text: str, pattern: str) -> float:
    """The last match as a number that need not be whole."""
    found = re.findall(pattern, text, re.MULTILINE)
    try:
        text = re.sub("[',]", "", found[-1])  # separators of thousands
        return int(text) if text.isdigit() else float(text)
    except (IndexError, ValueError):
        raise CountError(f"no number like {pattern!r} in its output: {text.strip()[-300:]!r}") from None


def contradictions(
    counts: dict[str, int], offered: int, received: int | None, wanted: int | None = None, nic_dropped: int = 0
) -> list[str]:
    """What the accounts of sender, device and contender do not agree on; `wanted`: what its filter takes of all.

    A contender may count what the NIC dropped, which is part of `received`, as lost, or not know it."""
    found = []
    delivered, lost, shunted = counts["delivered"], counts.get("lost"), counts.get("shunted", 0)
    if received is not None and received != offered:
        found.append(f"the device received {received} packets, {offered} were sent")
    share = offered if wanted is None else wanted
    if delivered > share:
        found.append(f"delivered {delivered} of {share}")
    elif lost is not None and share - delivered - shunted - lost not in (0, nic_dropped):
        found.append(f"it says that it lost {lost} packets, but {share - shunted - delivered} are missing")
    if offered - counts.get("offered", offered) not in (0, nic_dropped):
        found.append(f"it says that it was offered {counts['offered']} packets, not {offered}")
    if counts.get("balanced", 1) != 1:
        found.append("its counters do not balance")
    return found
