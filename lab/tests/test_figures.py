# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the arithmetic promises."""

import unittest

from ringtap_lab.scenarios import figures


class Figures(unittest.TestCase):
    def test_rate_is_in_millions_a_second(self):
        self.assertAlmostEqual(figures.rate_mpps(3_000_000, 2_000_000_000), 1.5)

    def test_loss_of_nothing_is_none(self):
        self.assertEqual(figures.loss_percent(0, 0), 0.0)
        self.assertEqual(figures.loss_percent(200, 150), 25.0)
