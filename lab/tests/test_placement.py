# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which placement is chosen."""

import unittest

from ringtap_lab.scenarios import placement


def way(mpps: float, lost: float, ns: float) -> dict:
    """A way with these medians."""
    values = {"delivered_mpps": mpps, "loss_percent": lost, "reader_ns": ns, "median_us": 1.0}
    return {"rounds": [], "summary": {key: {"median": one} for key, one in values.items()}}


class Choice(unittest.TestCase):
    """`placement.choice`."""

    def test_who_loses_nothing_is_chosen_before_who_works_less(self) -> None:
        ways = {"A:A": way(0.9, 10.0, 20), "A:B": way(1.0, 0.0, 60)}
        self.assertEqual(placement.choice(ways), "A:B")

    def test_among_equals_the_one_that_works_least_is_chosen(self) -> None:
        ways = {"A:A": way(0.1, 0.0, 20), "A:B": way(0.1, 0.0, 60)}
        self.assertEqual(placement.choice(ways), "A:A")

    def test_who_holds_the_sender_up_is_not_chosen(self) -> None:
        ways = {"A:A": way(2.0, 0.0, 20), "A:B": way(6.0, 0.0, 60)}
        self.assertEqual(placement.choice(ways), "A:B")

    def test_nothing_measured_is_no_choice(self) -> None:
        self.assertEqual(placement.choice({"A:A": {"rounds": [], "summary": {}}}), "not measured")


if __name__ == "__main__":
    unittest.main()
