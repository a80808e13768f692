# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rows brought together: what a capture adds to each packet."""

import unittest

from ringtap_lab.formatters.summary import added_ns, entries


def row(contender: str, repetition: int, pps: float, problems: tuple[str, ...] = (), rate: str = "max") -> dict:
    return {"key": contender, "group": "64 B", "repetition": repetition, "offered_pps": pps, "problems": list(problems),
            "case": {"contender": contender, "rate": rate, "method": "rate"}}  # fmt: skip


class Added(unittest.TestCase):
    def test_a_packets_time_above_nothing_is_taken_repetition_by_repetition(self):
        rows = [row("nothing", 0, 4e6), row("nothing", 1, 2e6), row("nothing", 2, 2e6, ("a fault",)),
                row("a", 0, 2e6), row("a", 1, 1e6), row("a", 2, 1e3), row("a", 3, 1e3)]  # fmt: skip
        # 500 - 250 and 1000 - 500; the others have no good baseline.
        self.assertEqual(added_ns(entries(rows)), {"a": "375 (250 to 500)"})

    def test_without_a_baseline_or_at_a_rate_nothing_is_added(self):
        self.assertEqual(added_ns(entries([row("a", 0, 2e6)])), {})
        slow = [row("nothing", 0, 1e3, rate="1kpps"), row("a", 0, 1e3, rate="1kpps")]
        self.assertEqual(added_ns(entries(slow)), {})


if __name__ == "__main__":
    unittest.main()
