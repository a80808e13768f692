# SPDX-License-Identifier: MIT OR Apache-2.0
"""Figures that several rows give together: what a capture adds to each packet, and the verdict of an aim."""

import unittest

from ringtap_lab.formatters.summary import against_nothing, entries, groups
from ringtap_lab.manager import aims, battery, contender
from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.inventory import InventoryError


def row(contender: str, repetition: int, pps: float, problems: tuple[str, ...] = (), rate: str = "max",
        **more: object) -> dict:  # fmt: skip
    return {"key": contender, "group": "64 B", "repetition": repetition, "offered_pps": pps, "problems": list(problems),
            "case": {"contender": contender, "rate": rate, "method": "rate", "size": 64}, **more}  # fmt: skip


def verdict(rows: list[dict], **words: object) -> tuple[list[float], str]:
    found = aims.verdict(aims.Aim("some", **words), aims.derived(rows))
    return [figure for _, figure in found.figures], found.word


class Added(unittest.TestCase):
    def test_a_packets_time_above_nothing_is_taken_repetition_by_repetition(self):
        rows = [row("nothing", 0, 4e6), row("nothing", 1, 2e6), row("nothing", 2, 2e6, ("a fault",)),
                row("a", 0, 2e6), row("a", 1, 1e6), row("a", 2, 1e3), row("a", 3, 1e3)]  # fmt: skip
        # 500 - 250 and 1000 - 500; the others have no good baseline.
        self.assertEqual(entries(rows)[1].spread("ns_above_nothing"), (375, 250, 500))
        self.assertEqual(entries(rows)[0].values("ns_above_nothing"), [])

    def test_without_a_baseline_or_at_a_rate_nothing_is_added(self):
        slow = [row("nothing", 0, 1e3, rate="1kpps"), row("a", 0, 1e3, rate="1kpps")]
        for rows in ([row("a", 0, 2e6)], slow):
            self.assertEqual([entry.values("ns_above_nothing") for entry in entries(rows)], [[]] * len(rows))


class Aims(unittest.TestCase):
    ROWS = (row("a", 0, 2e6), row("b", 0, 1e6), row("a", 1, 9e6), row("b", 1, 3e6), row("a", 2, 9e9, ("a fault",)),
            row("b", 2, 1e6), row("c", 0, 4e6))  # fmt: skip

    def test_two_figures_are_divided_repetition_by_repetition_and_the_median_counts(self):
        both = {"figure": "offered_pps", "of": {"contender": "a"}, "by": {"contender": "b"}}
        self.assertEqual(verdict(self.ROWS, **both, least=2.5), ([2.5], "met"))
        self.assertEqual(verdict(self.ROWS, **both, least=2.6), ([2.5], "MISSED"))
        self.assertEqual(verdict(self.ROWS, **both, most=2.5, least=2.5), ([2.5], "met"))

    def test_of_several_others_the_best_one_decides(self):
        both = {"figure": "offered_pps", "of": {"contender": "a"}, "by": {"contender": ["b", "c"]}}
        self.assertEqual(verdict(self.ROWS, **both, least=0.6), ([0.5, 2.5], "MISSED"))
        self.assertEqual(verdict(self.ROWS, **both, most=2.4), ([2.5, 0.5], "MISSED"))

    def test_every_repetition_must_be_good_and_reach_it_if_the_aim_says_so(self):
        both = {"figure": "offered_pps", "every": True}
        self.assertEqual(verdict(self.ROWS, of={"contender": "b"}, **both, least=1e6), ([1e6], "met"))
        self.assertEqual(verdict(self.ROWS, of={"contender": "b"}, **both, most=2e6), ([3e6], "MISSED"))
        self.assertEqual(verdict(self.ROWS, of={"contender": "a"}, **both, least=1), ([], "not measured"))

    def test_what_was_not_measured_is_not_met(self):
        rows = [row("a", 0, 1.0), row("b", 0, 0.0)]
        for words in ({"of": {"contender": "x"}}, {"of": {"contender": "a"}, "by": {"contender": "x"}},
                      {"of": {"contender": "a"}, "by": {"contender": "b"}}, {"of": {"size": 65}},
                      {"of": {"contender": "a"}, "per": "bytes"}):  # fmt: skip
            with self.subTest(words):
                self.assertEqual(verdict(rows, figure="offered_pps", **words, most=9), ([], "not measured"))

    def test_a_figure_is_divided_by_another_one_of_its_row(self):
        rows = [row("a", 0, 1.0, file_bytes=200, index_bytes=3)]
        self.assertEqual(
            verdict(rows, figure="index_bytes", of={"contender": "a"}, per="file_bytes", most=0.01), ([0.015], "MISSED")
        )

    def test_a_figure_is_subtracted_repetition_by_repetition(self):
        both = {"figure": "offered_pps", "of": {"contender": "a"}, "above": {"contender": "b"}}
        self.assertEqual(verdict(self.ROWS, **both, most=3.5e6), ([3.5e6], "met"))
        self.assertEqual(verdict(self.ROWS, **both, most=3e6), ([3.5e6], "MISSED"))
        (_, *cells) = aims.verdict(aims.Aim("more", **both, most=3e6), list(self.ROWS)).cells()
        self.assertEqual(cells, ["≤ 3 Mpps", "3.5 Mpps", "MISSED"])

    def test_a_promise_is_broken_if_it_is_missed_or_not_measured(self):
        words = {"figure": "offered_pps", "most": 0.5}
        wanted = [aims.Aim(f"{name} {promise}", of={"contender": name}, promise=promise, **words)
                  for name in ("a", "x") for promise in (True, False)]  # fmt: skip
        self.assertEqual(aims.broken(tuple(wanted), [row("a", 0, 1.0)]), ["a True", "x True"])
        self.assertEqual(aims.broken(tuple(wanted[:2]), [row("a", 0, 0.5)]), [])

    def test_a_verdict_is_told_in_the_unit_of_its_figure(self):
        aim = aims.Aim("late", "p99_ns", {"contender": "a"}, most=250_000)
        cells = aims.verdict(aim, [row("a", 0, 1.0, p99_ns=1_000_000)]).cells()
        self.assertEqual(cells, ["late", "≤ 250 µs", "1,000 µs", "MISSED"])

    def test_a_figure_that_must_be_exact_is_told_exactly(self):
        aim = aims.Aim("as computed", "file_bytes", {"contender": "a"}, least=56_896_024, most=56_896_024)
        cells = aims.verdict(aim, [row("a", 0, 1.0, file_bytes=56_896_025)]).cells()
        self.assertEqual(cells[1:], ["≥ 56,896,024 bytes and ≤ 56,896,024 bytes", "56,896,025 bytes", "MISSED"])
        fast = aims.Aim("fast", "cpu_gb_per_s", {"contender": "a"}, least=1)
        self.assertEqual(aims.verdict(fast, [row("a", 0, 1.0, cpu_gb_per_s=3.5)]).cells()[2], "3.5 GB/s")

    def test_an_aim_that_nothing_can_meet_is_refused(self):
        for text, why in [
            ("text = 'a'\nfigure = 'b'\nof = {}", "least"),
            ("text = 'a'", "figure"),
            ("text = 'a'\nfigure = 'b'\nmost = 1\nof = { sizes = 64 }", "no such key: sizes"),
        ]:
            with self.subTest(text), self.assertRaisesRegex(InventoryError, why):
                battery.parse(f"contenders = ['a']\n[[aim]]\n{text}\n", "some", "some.toml")

    def test_every_aim_of_the_batteries_is_about_cases_that_they_have(self):
        known = contender.load_all([contender.FOLDER])
        wanted = 0
        for path in sorted(battery.FOLDER.glob("*.toml")):
            one = battery.load(path, known)
            for aim in one.aims:
                for cases in (aim.of, *(other for other in (aim.by, aim.above) if other)):
                    rows = [{"case": vars(case), "key": case.key, "repetition": 0} for case, _ in one.cases]
                    self.assertTrue(list(aims._cases(rows, cases)), f"{path.name}: {aim.text}: {cases}")
                    wanted += 1
        self.assertGreater(wanted, 20)


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
