# SPDX-License-Identifier: MIT OR Apache-2.0
"""The checks of the kills: each must be able to fail."""

import contextlib
import io
import unittest
from pathlib import Path
from unittest import mock

from ringtap_lab.scenarios import contenders, kills
from ringtap_lab.scenarios.parse import Report


def status(delivered=100, lost=0, balanced=True, after=(10, 20), left=()):
    """The exit status of a run in which 100 packets were sent and 2 readers were left."""
    reports = [Report(100, 0, 100, True), Report(delivered, lost, 100, balanced)]
    with (
        mock.patch.object(kills, "leftovers", return_value=list(left)),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        return kills.show(100, 10**9, reports, (10, 20), after)


class Checks(unittest.TestCase):
    """What holds and what does not."""

    def test_nothing_lost_and_nothing_left_is_right(self):
        self.assertEqual(status(), 0)

    def test_one_packet_that_another_reader_lost_fails(self):
        self.assertEqual(status(delivered=99, lost=1), 1)

    def test_one_packet_that_nobody_accounts_for_fails(self):
        self.assertEqual(status(delivered=99), 1)

    def test_an_unbalanced_counters_fails(self):
        self.assertEqual(status(balanced=False), 1)

    def test_a_descriptor_that_leaks_fails(self):
        self.assertEqual(status(after=(11, 20)), 1)

    def test_a_mapping_that_leaks_fails(self):
        self.assertEqual(status(after=(10, 21)), 1)

    def test_a_process_that_stays_fails(self):
        self.assertEqual(status(left=["process 1"]), 1)

    def test_the_programs_are_complete(self):
        ringtap = Path("/bin/ringtap")
        self.assertEqual(contenders.Programs(ringtap).ringtap, ringtap)


if __name__ == "__main__":
    unittest.main()
