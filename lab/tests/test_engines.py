# SPDX-License-Identifier: MIT OR Apache-2.0
"""The models of other engines, against a simulation that moves packet after packet."""

import random
import unittest

from ringtap_lab.scenarios import engines
from ringtap_lab.scenarios.engines import Station

#: 64-byte packets at 10 Gbit/s; the reader of the WireCAP paper.
GAP_PS, READER_PS = 67_200, engines.service_ps(38_844)


def burst(packets: int) -> range:
    return range(0, packets * GAP_PS, GAP_PS)


def step_by_step(arrivals: list[int], stations: list[Station]) -> list[int]:
    """Packets that each station loses, then packets delivered; event by event."""
    queues, busy_until = [0 for _ in stations], [None for _ in stations]
    lost, delivered, arrivals = [0 for _ in stations], 0, list(arrivals)

    def enter(at: int) -> None:
        if queues[at] < stations[at].places:
            queues[at] += 1
        else:
            lost[at] += 1

    while arrivals or any(queues):
        now = min([time for time in busy_until if time is not None] + arrivals[:1])
        due = [at for at, time in enumerate(busy_until) if time == now]
        if due:
            at = due[-1]  # The last station makes room before the one before it delivers.
            queues[at] -= 1
            busy_until[at] = None
            if at + 1 < len(stations):
                enter(at + 1)
            else:
                delivered += 1
        else:
            arrivals.pop(0)
            enter(0)
        for at, station in enumerate(stations):
            if busy_until[at] is None and queues[at]:
                busy_until[at] = now + station.service_ps
    return [*lost, delivered]


class Models(unittest.TestCase):
    def test_both_engines_lose_what_a_step_by_step_simulation_loses(self):
        dice = random.Random(11)
        for _ in range(300):
            arrivals = sorted(dice.randrange(200) for _ in range(dice.randrange(1, 120)))
            stations = [Station(dice.randrange(1, 9), dice.randrange(12)) for _ in range(2)]
            alone = engines.ring(arrivals, Station(stations[0].places, stations[0].service_ps))
            self.assertEqual([alone.nic, alone.delivered], step_by_step(arrivals, stations[:1]))
            expected = step_by_step(arrivals, stations)
            found = engines.copy(arrivals, *stations)
            self.assertEqual([found.nic, found.kernel, found.delivered], expected, stations)

    def test_a_ring_holds_its_places_and_what_was_read_meanwhile(self):
        for packets in (1000, 1024, 1025, 6000, 100_000):
            read = (packets - 1) * GAP_PS // READER_PS
            expected = max(packets - 1024 - read, 0)
            found = engines.ring(burst(packets), Station(1024, READER_PS))
            self.assertAlmostEqual(found.nic, expected, delta=1)
            self.assertEqual(found.delivered + found.nic, packets)

    def test_a_slow_copy_loses_packets_of_a_fast_reader(self):
        kernel = Station(1024, engines.service_ps(2_000_000))
        found = engines.copy(burst(1_000_000), kernel, Station(10_240, 0))
        self.assertGreater(found.nic, 850_000)
        self.assertEqual(found.kernel, 0)

    def test_a_overrun_loses_packets_that_were_copied_for_nothing(self):
        kernel = Station(1024, engines.service_ps(2_000_000))
        found = engines.copy(burst(100_000), kernel, Station(10_240, READER_PS))
        self.assertGreater(found.kernel, 0)
        self.assertGreater(found.nic + found.kernel, 100_000 - 10_240 - 1024 - 14_000)


if __name__ == "__main__":
    unittest.main()
