# SPDX-License-Identifier: MIT OR Apache-2.0
"""The models of other engines, against a simulation that moves packet after packet."""

import random
import unittest

from ringtap_lab.papers import models
from ringtap_lab.papers.models import Station

#: 64-byte packets at 10 Gbit/s; the reader of the WireCAP paper.
GAP_PS, READER_PS = 67_200, models.service_ps(38_844)


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
    def test_one_and_two_stages_lose_what_a_step_by_step_simulation_loses(self):
        dice = random.Random(11)
        for _ in range(300):
            arrivals = sorted(dice.randrange(200) for _ in range(dice.randrange(1, 120)))
            if dice.randrange(2):
                gap = dice.randrange(1, 9)
                arrivals = range(0, gap * dice.randrange(1, 120), gap)
            stations = [Station(dice.randrange(1, 9), dice.randrange(12)) for _ in range(2)]
            for several in (stations[:1], stations):
                fresh = [Station(one.places, one.service_ps) for one in several]
                found = models.delivered(arrivals, fresh)
                self.assertEqual([*(one.lost for one in fresh), found], step_by_step(arrivals, several), several)

    def test_a_ring_holds_its_places_and_what_was_read_meanwhile(self):
        for packets in (1000, 1024, 1025, 6000, 100_000):
            read = (packets - 1) * GAP_PS // READER_PS
            ring = Station(1024, READER_PS)
            found = models.delivered(burst(packets), [ring])
            self.assertAlmostEqual(ring.lost, max(packets - 1024 - read, 0), delta=1)
            self.assertEqual(found + ring.lost, packets)


class Described(unittest.TestCase):
    """The files of `models/`."""

    def setUp(self) -> None:
        self.known = models.load_all()

    def test_every_number_has_a_source(self):
        self.assertEqual(set(self.known), {"PF_RING", "PF_RING DNA", "PF_RING ZC", "netmap", "Sniffer10G"})
        for one in self.known.values():
            self.assertEqual(one.stages[-1].emptied_by, models.READER)
            for stage in one.stages:
                self.assertRegex(stage.source, "places: .+; rate: .+", one.name)

    def test_an_engine_that_is_faster_than_the_link_loses_nothing(self):
        netmap = self.known["netmap"]
        stations = [Station(one.places, models.service_ps(one.pps)) for one in netmap.stages]
        self.assertEqual(models.delivered(list(burst(20_000)), stations), 20_000)
        self.assertEqual(netmap.loss_percent(20_000, GAP_PS), 0.0)

    def test_they_show_what_the_papers_measured(self):
        """Figure 8: at readers that only count, PF_RING alone loses. Figure 9: DNA loses 15 % of 6,000."""
        for name, one in self.known.items():
            lost = one.loss_percent(100_000, GAP_PS)
            self.assertEqual(lost > 50, name == "PF_RING", (name, lost))
        self.assertAlmostEqual(self.known["PF_RING DNA"].loss_percent(6_000, GAP_PS, 38_844), 15, delta=1)


if __name__ == "__main__":
    unittest.main()
