# SPDX-License-Identifier: MIT OR Apache-2.0
"""What neighbours cost: ratios and checks."""

import unittest

from ringtap_lab.scenarios.neighbours import Comparison, Outcome


def runs(*hub_ms: int, lost: int = 0) -> list[Outcome]:
    """Runs of a second with a million packets, in which the hub's thread ran so many milliseconds."""
    return [Outcome(10**6, 10**9, ms * 10**6, lost, 90) for ms in hub_ms]


def failed(one: Comparison, max_ratio: float, max_percent: float) -> list[str]:
    """The checks that did not hold, without the rate."""
    found = one.checks(max_ratio, max_percent)
    return [name.removeprefix("1Mpps: ") for name, _, held in found if not held]


class Neighbours(unittest.TestCase):
    def test_times_are_for_a_million_packets_and_medians_are_compared(self):
        one = Comparison("1Mpps", runs(20, 40, 30), runs(60, 20, 36))
        self.assertAlmostEqual(one.control[0].ms_per_million, 20)
        self.assertAlmostEqual(one.control[0].percent, 2)
        self.assertAlmostEqual(one.ratio, 1.2)
        self.assertAlmostEqual(one.more_percent, 0.6)

    def test_too_much_time_and_lost_packets_fail(self):
        one = Comparison("1Mpps", runs(20), runs(50))
        self.assertEqual(failed(one, 2, 5), ["ratio of the hub's time"])
        self.assertEqual(failed(one, 3, 2), ["more of the hub's time, %"])
        self.assertEqual(failed(one, 3, 5), [])
        one = Comparison("1Mpps", runs(20, lost=5), runs(20, lost=1006))
        self.assertEqual(failed(one, 2, 5), ["lost by the reader"])
        one = Comparison("1Mpps", runs(20, lost=5), runs(20, lost=1005))
        self.assertEqual(failed(one, 2, 5), [])


if __name__ == "__main__":
    unittest.main()
