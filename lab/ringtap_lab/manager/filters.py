# SPDX-License-Identifier: MIT OR Apache-2.0
"""Filters of the readers of a case: sets by name, as a battery's `filters` chooses one.

They fit the packets of `ringtap send`: UDP from 198.18.0.1, ports 10000 and up by flow, to port 9 of 198.19.0.1.
"""

from __future__ import annotations

from dataclasses import dataclass

SETS = ("none", "one matches", "none matches", "parts", "the last takes all", "1 of 1,000")
MATCHING = "udp dst port 9"
#: Filters that no packet of the sender matches; each number makes another one.
OTHERS = ("udp dst port {}", "tcp port {}", "host 203.0.113.{}", "net 10.{}.0.0/16 and udp")
FIRST_PORT = 10000


@dataclass(frozen=True)
class Wanted:
    """What one reader asks for."""

    filter: str = ""
    #: It takes one packet of so many, by turns; 0: none.
    part: int = 1

    def share(self, sent: int, told: int) -> int:
        """Packets that the reader should see; where turns do not come out even, it may be one more."""
        least = sent // self.part if self.part else 0
        return least + 1 if self.part and sent % self.part and told == least + 1 else least


def of(name: str, readers: int) -> list[Wanted]:
    """What each of so many readers asks for."""
    others = [Wanted(OTHERS[number % len(OTHERS)].format(number + 20), 0) for number in range(readers)]
    match name:
        case "one matches":
            return [*others[1:], Wanted(MATCHING)]
        case "none matches":
            return others
        case "the last takes all":
            # The others ask for the same, and get nothing.
            return [others[0]] * (readers - 1) + [Wanted()]
        case "parts":
            return [Wanted(f"udp src port {FIRST_PORT + number}", readers) for number in range(readers)]
        case "1 of 1,000":
            # All want the first of 1,000 flows.
            return [Wanted(f"udp src port {FIRST_PORT}", 1000)] * readers
    return [Wanted()] * readers
