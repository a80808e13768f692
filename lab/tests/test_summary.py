# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rows brought together: what a capture adds to each packet."""

import unittest

from ringtap_lab.formatters.summary import added_ns, against_nothing, entries, groups
from ringtap_lab.manager.battery import Case


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


class Services(unittest.TestCase):
    def served(self, contender: str, repetition: int, answers: int, **case: str | int) -> dict:
        one = Case(contender, service="web", **case)
        return {"key": one.key, "group": one.group, "repetition": repetition, "problems": [], "case": vars(one),
                "served": {"answers": answers}, "answers": answers}  # fmt: skip

    def test_each_is_compared_with_nothing_repetition_by_repetition(self):
        rows = [self.served("nothing", 0, 100), self.served("nothing", 1, 200), self.served("a", 0, 50, readers=4),
                self.served("a", 1, 100, readers=4), self.served("a", 2, 7, readers=4)]  # fmt: skip
        (found,) = groups(rows).values()
        self.assertEqual([one.contender for one in found], ["nothing", "a, 4 readers"])
        one = against_nothing(found)["a, 4 readers"]["answers"]
        self.assertEqual((round(one.ratio, 6), round(one.low, 6), round(one.high, 6)), (0.5, 0.5, 0.5))
        self.assertEqual(found[1].main[0], "answers")
        self.assertEqual(against_nothing(found[1:]), {})


if __name__ == "__main__":
    unittest.main()
