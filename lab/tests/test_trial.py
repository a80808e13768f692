# SPDX-License-Identifier: MIT OR Apache-2.0
"""Accounts that do not agree are found, and the search for the lossless rate ends right."""

import unittest

from ringtap_lab.scenarios import lossless, trial
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


class Lossless(unittest.TestCase):
    """A contender that takes `capacity` and a sender that gives at most `most`, in packets/s."""

    def search(self, capacity, most, hint=None):
        self.asked = []

        def probe(rate):
            self.asked.append(rate)
            sent = min(most, most if rate == "max" else float(rate.removesuffix("pps")))
            return sent, min(sent, capacity), sent <= capacity

        return lossless.highest_lossless(probe, hint)

    def test_the_rate_is_found_from_below(self):
        for capacity in (150_000, 400_000, 790_000):
            found = self.search(capacity, 1_000_000)
            self.assertFalse(found["limited"])
            self.assertLessEqual(found["lossless_pps"], capacity)
            self.assertGreater(found["lossless_pps"], capacity / 1.08)

    def test_a_hint_saves_trials_and_is_not_believed(self):
        found = self.search(400_000, 1_000_000, hint=390_000)
        self.assertLessEqual(len(self.asked), 5)
        self.assertGreater(found["lossless_pps"], 370_000)
        found = self.search(200_000, 1_000_000, hint=390_000)
        self.assertLessEqual(found["lossless_pps"], 200_000)
        self.assertGreater(found["lossless_pps"], 180_000)

    def test_a_sender_that_is_too_slow_is_told(self):
        found = self.search(2_000_000, 1_000_000)
        self.assertLessEqual({"lossless_pps": 1_000_000, "lossy_pps": None, "limited": True}.items(), found.items())

    def test_a_failed_trial_gives_no_figure(self):
        self.assertIsNone(lossless.highest_lossless(lambda _rate: None, None))
