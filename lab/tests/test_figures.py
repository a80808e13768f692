# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the arithmetic promises."""

import unittest

from ringtap_lab.scenarios import figures


class Figures(unittest.TestCase):
    def test_spread_of_an_even_number_of_values_has_the_middle_between_two(self):
        self.assertEqual(figures.spread([4, 1, 2, 9]), {"median": 3, "min": 1, "max": 9})

    def test_rate_is_in_millions_a_second(self):
        self.assertAlmostEqual(figures.rate_mpps(3_000_000, 2_000_000_000), 1.5)

    def test_loss_of_nothing_is_none(self):
        self.assertEqual(figures.loss_percent(0, 0), 0.0)
        self.assertEqual(figures.loss_percent(200, 150), 25.0)

    def test_summary_leaves_out_what_no_round_has(self):
        rows = [{"a": 1, "b": None}, {"a": 3, "b": None}]
        self.assertEqual(figures.summary(rows, ("a", "b")), {"a": {"median": 2, "min": 1, "max": 3}})
