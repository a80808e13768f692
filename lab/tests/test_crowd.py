# SPDX-License-Identifier: MIT OR Apache-2.0
"""Accounts of many readers, filters of which one matches, and the goals about the hub."""

import unittest

from ringtap_lab.manager import filters
from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.trial import account
from ringtap_lab.scenarios import goals, hub, readers, report, tables
from ringtap_lab.scenarios.filters import FLOOR, NO_MATCH, against_floor
from ringtap_lab.scenarios.readers import HUB, PACKET
from ringtap_lab.scenarios.turns import KNOWN


def words(received, dropped=0, total=None):
    """The last words of an AF_PACKET reader."""
    total = received * 10 if total is None else total
    return f"received {received} dropped {dropped}\nheaders sum {total}\n"


def stored():
    """A small result of the hub's scenarios."""

    def kinds(**rates):
        names = {"hub": HUB, "packet": PACKET}
        found = {}
        for kind, by_count in rates.items():
            counts = {}
            for count, rate in by_count.items():
                rounds = [{"round": 0, "lossless_pps": rate, "limited": kind == "hub"}]
                spread = {"median": rate, "min": rate, "max": rate}
                counts[str(count)] = {"rounds": rounds, "summary": {"lossless_pps": spread}}
            found[names[kind]] = {"command": f"run {kind}", "note": "", "missing": None,
                                  "counts": counts}  # fmt: skip
        return {"size": 64, "trial_seconds": 1, "contenders": found}

    def full(rate, problems=()):
        rounds = [{"round": 0, "offered_mpps": rate, "problems": list(problems)}]
        return {"rounds": rounds, "summary": {"offered_mpps": dict.fromkeys(
            ("median", "min", "max"), rate)}}  # fmt: skip

    one = kinds(hub={8: 5e6, 64: 2e6}, packet={8: 5e5, 64: 5e5})
    one["no-match"] = {FLOOR: full(10.0), NO_MATCH: full(8.0)}
    busy = {"round": 0, "offered_mpps": 5.0, "lost": 0, "percent_of_core": 2.5, "idle_ticks": 0,
            "idle_ns": 1_500_000, "problems": []}  # fmt: skip
    waking = [{"round": 0, "median_ns": each, "sent_median_ns": 2 * each, "problems": []}
              for each in (20_000, 10_000)]
    return {
        "readers": kinds(hub={1: 6e6, 8: 5e6, 16: 4.5e6}, packet={8: 5e5, 16: 2.5e5}),
        "filters": one,
        "hub-cpu": {"readers": 4, "idle_seconds": 10.0, "contenders": {HUB: {
            "command": "run hub", "rounds": [busy], "summary": {}}}},
        "wake": {"contenders": {name: {"command": "run", "rounds": [row], "summary": {}}
                                for name, row in zip(hub.WAKE, waking)}},
    }  # fmt: skip


class Accounts(unittest.TestCase):
    """What all readers of a trial say beside what was sent."""

    def row(self, texts, filters="none", sent=100, received=100):
        case = Case(PACKET, readers=len(texts), filters=filters, flows=len(texts))
        ended = [{"output": one} for one in texts]
        return account(KNOWN[PACKET], case, ended, {"sent": sent, "elapsed_ns": 10**9}, received)

    def faults(self, *arguments, **more):
        return self.row(*arguments, **more)["problems"]

    def test_readers_that_all_got_everything_agree(self):
        self.assertEqual(self.faults([words(100), words(100)]), [])

    def test_a_reader_that_hides_a_loss_is_named(self):
        (found,) = self.faults([words(100), words(90)])
        self.assertEqual(
            found, "reader 2 of 2: it says that it lost 0 packets, but 10 are missing"
        )

    def test_a_loss_that_is_told_is_no_fault(self):
        row = self.row([words(100), words(90, 10)])
        self.assertEqual((row["problems"], row["lost"], row["delivered"]), ([], 10, 90))

    def test_headers_that_differ_between_readers_of_the_same_packets_are_a_fault(self):
        (found,) = self.faults([words(100), words(100, total=999)])
        self.assertIn("headers of the same 100 packets", found)
        (found,) = self.faults([words(100, total=0)])
        self.assertIn("have the sums [0]", found)

    def test_a_packet_that_a_filter_does_not_want_is_a_fault(self):
        row = self.row([words(0, 3), words(100)], "one matches")
        self.assertEqual((row["problems"], row["delivered"], row["lost"]), ([], 100, 0))
        (found,) = self.faults([words(1), words(100)], "one matches")
        self.assertEqual(found, "reader 1 of 2: delivered 1 of 0")
        row = self.row([words(0)], "none matches")
        self.assertEqual((row["problems"], row["delivered"], row["lost"]), ([], 100, 0))

    def test_readers_of_parts_have_all_packets_together(self):
        row = self.row([words(51, total=7), words(50, total=8)], "parts", sent=101, received=101)
        self.assertEqual((row["problems"], row["lost"], row["delivered"]), ([], 0, 100))
        row = self.row([words(50), words(49, 1)], "parts")
        self.assertEqual((row["problems"], row["lost"], row["delivered"]), ([], 1, 98))
        (found,) = self.faults([words(50), words(49)], "parts")
        self.assertEqual(found, "reader 2 of 2: it says that it lost 0 packets, but 1 are missing")

    def test_a_device_that_saw_something_else_is_found(self):
        (found,) = self.faults([words(100)], received=99)
        self.assertIn("the device received 99 packets", found)


class Filters(unittest.TestCase):
    def test_all_filters_differ_and_one_matches(self):
        for count in (1, 8, 64):
            found = filters.of("one matches", count)
            self.assertEqual(len({one.filter for one in found}), count)
            self.assertEqual([one.part for one in found].count(1), 1)
            self.assertEqual({one.part for one in filters.of("none matches", count)}, {0})


class Goals(unittest.TestCase):
    def figures(self, result):
        return {one["goal"]: one for one in goals.evaluate(result) if one["goal"].startswith("hub")}

    def test_every_goal_of_the_hub_has_a_verdict(self):
        found = self.figures(stored())
        got = [(round(one["figure"], 3), one["verdict"]) for one in found.values()]
        want = [(0.75, "MISSED"), (10, "met"), (18, "met"), (4, "met"), (0.8, "MISSED"),
                (2.5, "met"), (0, "met"), (2, "MISSED")]  # fmt: skip
        self.assertEqual(got, want)

    def test_what_is_at_fault_or_not_measured_meets_no_goal(self):
        self.assertEqual({one["verdict"] for one in self.figures({}).values()}, {"not measured"})
        result = stored()
        result["filters"]["no-match"][NO_MATCH]["rounds"][0]["problems"] = ["lost"]
        self.assertIsNone(against_floor(result))
        result["hub-cpu"]["contenders"][HUB]["rounds"][0]["problems"] = ["x"]
        self.assertIsNone(hub.percent_of_core(result))
        self.assertIsNone(hub.idle_ticks(result))

    def test_a_rate_of_zero_is_no_ratio(self):
        result = stored()
        rounds = readers.rounds_of(result, "readers", PACKET, 8)
        rounds[0]["lossless_pps"] = 0.0
        self.assertIsNone(readers.ratio(result, "readers", (HUB, 8), (PACKET, 8)))


class Tables(unittest.TestCase):
    def test_the_senders_limit_is_marked_and_what_was_not_measured_is_not_zero(self):
        text = tables.crowds(stored()["readers"])
        self.assertRegex(text, r"\| ringtap hub +\| 6.00 \(6.00 to 6.00\) \*")
        self.assertRegex(text, r"\| AF_PACKET +\| +- \|")

    def test_what_the_hub_takes_is_told_round_by_round(self):
        text = tables.hub_cpu(stored()["hub-cpu"])
        self.assertRegex(text, r"\| round 1 +\| 5.00 \| +0 \| +2.50 \| +0 \| +1.50 \|")

    def test_the_readme_shows_rates_and_no_goals(self):
        result = stored()
        result |= {"goals": goals.evaluate(result), "notes": [], "date": "2026-01-01T00:00:00Z",
                   "revision": "abc", "tools": dict.fromkeys(
                       ("tcpdump", "dumpcap", "netsniff-ng"), "1"),
                   "machine": {"cpu": "A CPU", "cores": 2, "virtual": True, "kernel": "6.18",
                               "system": "a system"}}  # fmt: skip
        text = report.readme_part(result)
        self.assertRegex(text, r"\| 8 readers +\| +5.00 \* \|")
        self.assertEqual(text.count("\n| "), 5)
        for goal in result["goals"]:
            self.assertNotIn(goal["goal"], text)

    def test_every_section_of_the_page_can_be_made(self):
        result = stored()
        for key, _, render in report.SECTIONS:
            if key in result:
                self.assertTrue(render(result[key]).startswith("|"), key)


if __name__ == "__main__":
    unittest.main()
