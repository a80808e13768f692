# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the arithmetic promises."""

import unittest

from ringtap_lab.scenarios import figures


class Figures(unittest.TestCase):
    def test_spread_of_an_even_number_of_values_has_the_middle_between_two(self):
        self.assertEqual(figures.spread([4, 1, 2, 9]), {"median": 3, "min": 1, "max": 9})

    def test_rate_is_in_millions_a_second(self):
        self.assertAlmostEqual(figures.rate_mpps(3_000_000, 2_000_000_000), 1.5)

    def test_twice_the_floors_time_is_the_floors_time_above_it(self):
        self.assertAlmostEqual(figures.ns_above_floor(0.5, 1.0), 1000.0)

    def test_nothing_delivered_has_no_cost_a_packet(self):
        self.assertIsNone(figures.ns_above_floor(0.0, 1.0))
        self.assertIsNone(figures.ns_above_floor(1.0, 0.0))

    def test_loss_of_nothing_is_none(self):
        self.assertEqual(figures.loss_percent(0, 0), 0.0)
        self.assertEqual(figures.loss_percent(200, 150), 25.0)

    def test_ratios_pair_rounds_and_leave_out_what_has_no_partner(self):
        mine = [{"round": 0, "x": 2.0}, {"round": 1, "x": 9.0}, {"round": 2, "x": 3.0}]
        other = [{"round": 2, "x": 6.0}, {"round": 0, "x": 1.0}]
        self.assertEqual(figures.ratios(mine, other, "x"), [2.0, 0.5])

    def test_floor_of_the_same_round_is_taken(self):
        def row(number, delivered, offered):
            return {"round": number, "delivered_mpps": delivered, "offered_mpps": offered}

        rows = {
            "floor": [row(0, 2.0, 2.0), row(1, 1.0, 1.0)],
            "one": [row(0, 1.0, 2.0), row(1, 0.5, 1.0)],
        }
        figures.with_floor(rows, "floor")
        self.assertEqual([one["ns_above_floor"] for one in rows["one"]], [500.0, 1000.0])
        self.assertEqual([one["ns_above_floor_offered"] for one in rows["one"]], [0.0, 0.0])
        self.assertNotIn("ns_above_floor", rows["floor"][0])

    def test_summary_leaves_out_what_no_round_has(self):
        rows = [{"a": 1, "b": None}, {"a": 3, "b": None}]
        self.assertEqual(figures.summary(rows, ("a", "b")), {"a": {"median": 2, "min": 1, "max": 3}})
