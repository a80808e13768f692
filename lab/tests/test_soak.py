# SPDX-License-Identifier: MIT OR Apache-2.0
"""The checks of the long run: each must be able to fail."""

import unittest

from ringtap_lab.scenarios import soak
from ringtap_lab.scenarios.parse import Report
from ringtap_lab.scenarios.tool import ToolError


def outcome(delivered=90, lost=10, balanced=True, kib=(50, 100, 101), left=()):
    """A run of 100 seconds that was offered 100 packets."""
    memory = soak.Memory([(at, one) for at, one in zip((0.0, 50.0, 90.0), kib)])
    report = Report(delivered, lost, offered=100, balanced=balanced)
    return soak.Outcome(100.0, 100, 10**11, 100, report, memory, list(left))


class Checks(unittest.TestCase):
    """What holds and what does not."""

    def failed(self, **changed):
        """The checks that do not hold."""
        return [name for name, _, held in outcome(**changed).checks() if not held]

    def test_counted_loss_is_no_failure(self):
        self.assertEqual(self.failed(), [])

    def test_a_packet_without_explanation_fails(self):
        self.assertIn("packets unexplained: 0", self.failed(lost=9))

    def test_an_unbalanced_counters_fails(self):
        self.assertIn("counters balanced", self.failed(balanced=False))

    def test_memory_that_grows_after_the_warm_up_fails(self):
        self.assertEqual(len(self.failed(kib=(50, 100, 101 + soak.MAX_GROWTH_KIB))), 1)

    def test_memory_that_grows_in_the_warm_up_does_not(self):
        self.assertEqual(self.failed(kib=(50, 10_000, 10_000)), [])

    def test_what_is_left_behind_fails(self):
        self.assertEqual(len(self.failed(left=["an XDP program"])), 1)

    def test_a_run_without_samples_tells_so(self):
        with self.assertRaises(ToolError):
            outcome(kib=(50,)).checks()


if __name__ == "__main__":
    unittest.main()
