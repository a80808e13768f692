# SPDX-License-Identifier: MIT OR Apache-2.0
"""Accounts that do not agree are found."""

import unittest

from ringtap_lab.scenarios import trial
from ringtap_lab.scenarios.parse import Report


class Contradictions(unittest.TestCase):
    def test_accounts_that_agree(self):
        report = Report(delivered=90, lost=10, offered=100, balanced=True)
        self.assertEqual(trial.contradictions(report, 100, 100), [])

    def test_a_wrong_claim_of_loss_is_found(self):
        (found,) = trial.contradictions(Report(delivered=90, lost=0), 100, 100)
        self.assertIn("lost 0 packets, but 10 are missing", found)

    def test_more_delivered_than_offered_is_found(self):
        (found,) = trial.contradictions(Report(delivered=101, lost=0), 100, 100)
        self.assertEqual(found, "delivered 101 of 100")

    def test_a_device_that_saw_something_else_is_found(self):
        (found,) = trial.contradictions(Report(delivered=100, lost=0), 100, 99)
        self.assertIn("received 99 packets, 100 were sent", found)

    def test_an_unbalanced_counters_is_found(self):
        report = Report(delivered=100, lost=0, offered=101, balanced=False)
        found = trial.contradictions(report, 100, 100)
        self.assertEqual(len(found), 2)
        self.assertEqual(found[1], "its counters do not balance")
