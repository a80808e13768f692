# SPDX-License-Identifier: MIT OR Apache-2.0
"""A trial of a service of the captured machine: what its client says, beside what was captured meanwhile.

Invariants
- Segmentation offload and GRO merge packets at different places, so device and contender need not count the same
  packets. A reader cannot have more packets than the device received and sent.
"""

from __future__ import annotations

from typing import Any

from ringtap_lab.manager import filters
from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.contender import Contender


def account(
    contender: Contender, case: Case, outputs: list[str], served: dict[str, Any], passed: int
) -> dict[str, Any]:
    """A row; `passed`: packets that the device received and sent from start to end."""
    each = [contender.counts.read(text) for text in outputs]
    wanted = filters.of(case.filters, len(each))
    problems = [f"its client says {name} = 0" for name, value in served.items() if not value]
    for number, (counts, one) in enumerate(zip(each, wanted, strict=True), 1):
        problems += [f"reader {number} of {len(each)}: {it}" for it in contradictions(counts, one.part, passed)]
    seen = [counts["delivered"] + counts.get("lost", 0) for counts in each]
    lost = [counts.get("lost", 0) if one.part else 0 for counts, one in zip(each, wanted, strict=True)]
    return {
        "served": served,
        **served,
        "passed": passed,
        "delivered": min(counts["delivered"] for counts in each),
        "lost": sum(lost),
        "loss_percent": max(100.0 * part / max(1, whole) for part, whole in zip(lost, seen, strict=True)),
        "readers": each,
        "problems": problems,
    }


def contradictions(counts: dict[str, int], part: int, passed: int) -> list[str]:
    """What cannot be true of one reader, whose filter takes all packets or none (`part` 0)."""
    delivered, found = counts["delivered"], []
    if delivered > passed:
        found.append(f"delivered {delivered} packets of {passed}")
    if delivered and not part:
        found.append(f"delivered {delivered} packets that its filter does not pass")
    # Whoever captures says what it lost.
    if part and not delivered and "lost" in counts:
        found.append("delivered nothing")
    if counts.get("balanced", 1) != 1:
        found.append("its counters do not balance")
    return found
