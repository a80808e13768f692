# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of other capture engines: a receive ring alone, and a ring copied into a second buffer.

They count packets of one receive queue in whole picoseconds and know nothing of Ringtap. When
events coincide, a departure comes before an arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

PS_PER_SECOND = 10**12


def service_ps(rate_pps: int) -> int:
    """Time for one packet at this rate."""
    return PS_PER_SECOND // rate_pps


@dataclass
class Station:
    """A queue with one server: each packet keeps its place until it has been served.

    A packet that finds all places taken is lost.
    """

    places: int
    service_ps: int
    lost: int = 0

    def serve(self, arrivals: Iterable[int]) -> Iterator[int]:
        """The departure time of each packet that is not lost; `arrivals` are in order."""
        # Every packet takes the same time, so the server's remaining work tells how many wait.
        max_work_ps = (self.places - 1) * self.service_ps
        idle_from = 0
        for now in arrivals:
            if idle_from - now > max_work_ps:
                self.lost += 1
            else:
                idle_from = max(idle_from, now) + self.service_ps
                yield idle_from


@dataclass(frozen=True)
class Counters:
    """The packets of one run, named as in Ringtap's own counters."""

    delivered: int
    nic: int
    kernel: int = 0

    @property
    def loss(self) -> float:
        """Share of the offered packets that was lost."""
        lost = self.nic + self.kernel
        return lost / max(self.delivered + lost, 1)


def count(packets: Iterable) -> int:
    return sum(1 for _ in packets)


def ring(arrivals: Iterable[int], reader: Station) -> Counters:
    """The reader works in the receive ring: `reader.places` (PF_RING DNA, netmap)."""
    delivered = count(reader.serve(arrivals))
    return Counters(delivered, nic=reader.lost)


def copy(arrivals: Iterable[int], kernel: Station, reader: Station) -> Counters:
    """The kernel copies from the ring into the reader's buffer (PF_RING).

    It also spends the time for a copy on packets for which the buffer has no place.
    """
    delivered = count(reader.serve(kernel.serve(arrivals)))
    return Counters(delivered, nic=kernel.lost, kernel=reader.lost)
