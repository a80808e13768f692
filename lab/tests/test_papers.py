# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pages of published figures: how a claim is judged, and what a page says."""

from __future__ import annotations

import tempfile
import tomllib
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from ringtap_lab.manager import battery, contender
from ringtap_lab.papers import command, judge, page, plot, sources

ROWS = {"run": [
    {"series": "ours", "kind": "ours", "P": 1, "lost": 0.0, "mode": "a"},
    {"series": "ours", "kind": "ours", "P": 2, "lost": 4.0, "mode": "a"},
    {"series": "other", "kind": "model", "P": 1, "lost": 1.0, "mode": "a"},
    {"series": "other", "kind": "model", "P": 2, "lost": 5.0, "mode": "a"},
]}  # fmt: skip
OURS = {"data": "run", "series": "ours", "value": "lost"}
OTHER = {"data": "run", "series": "other", "value": "lost"}


def judged(rule: str, right: object, left: dict = OURS, **more: float) -> judge.Verdict:
    return judge.judge(ROWS, {"text": "it", "left": left, "is": rule, "right": right, **more})


class Checks(unittest.TestCase):
    def test_every_value_must_hold_and_the_nearest_to_failing_is_shown(self):
        self.assertTrue(judged("at most", 4).holds)
        failed = judged("at most", 3.9)
        self.assertEqual((failed.holds, failed.value, failed.bound, failed.count), (False, 4.0, 3.9, 2))
        self.assertTrue(judged("at least", 0).holds)
        self.assertFalse(judged("at least", 0.1).holds)
        self.assertTrue(judged("within", 2, tolerance=2).holds)
        self.assertFalse(judged("within", 2, tolerance=1.9).holds)

    def test_series_are_compared_point_by_point(self):
        self.assertTrue(judged("at most", OTHER).holds)
        self.assertFalse(judged("at most", OTHER, factor=0.5).holds)
        self.assertFalse(judged("at least", OTHER).holds)

    def test_values_are_reduced_before(self):
        for how, value in (("sum", 4), ("median", 2), ("most", 4), ("least", 0)):
            self.assertEqual(judged("at least", 0, {**OURS, "reduce": how}).value, value)

    def test_what_was_not_measured_never_holds(self):
        nothing = judged("at most", 1, {**OURS, "P": 3})
        self.assertIsNone(nothing.holds)
        self.assertEqual(judge.headline([nothing]), "not measured yet")
        some = judge.headline([judged("at most", 4), nothing])
        self.assertEqual(some, "the claim holds for Ringtap where it was measured: 1 of 2 checks hold, 1 not measured")

    def test_what_means_nothing_is_an_error(self):
        for wrong in (
            lambda: judged("about", 1), lambda: judged("at most", 1, {**OURS, "data": "none"}),
            lambda: judged("at most", 1, tolerence=1),
            lambda: judged("at most", {"data": "run", "value": "lost", "series": ["ours", "other"]}),
        ):  # fmt: skip
            self.assertRaises(judge.PageError, wrong)

    def test_the_first_line_says_whether_the_claim_holds(self):
        good, bad = judged("at most", 4), judged("at most", 3)
        self.assertEqual(judge.headline([good]), "the claim holds for Ringtap")
        self.assertIn("does not hold for Ringtap in full: 1 of 2", judge.headline([good, bad]))


WANTED = {
    "title": "Paper, figure 1", "paper": "A paper", "claim": "Less is lost.", "differs": ["Our machine\nis small."],
    "check": [{"text": "less", "left": OURS, "is": "at most", "right": OTHER}],
    "beside": [{"what": "lost", "paper": "7", "source": "figure 1", "here": OURS}],
    "table": [
        {"title": "By P", "data": "run", "heading": "P", "rows": ["P"], "columns": "series", "value": "lost"},
        {"title": "All", "data": "run", "heading": "who", "rows": ["series", "P"], "values": [["lost", "%", 1]]},
    ],
    "plot": [{"name": "one", "title": "One", "data": "run", "x": "P", "y": "lost", "xlabel": "x", "ylabel": "y"}],
}  # fmt: skip


class Pages(unittest.TestCase):
    def made(self, wanted: dict) -> str:
        return page.make(wanted, "one.toml", ROWS, {"run": "here"}, lambda _: Path("one.svg"))

    def test_a_page_begins_with_the_verdict_and_has_all_parts(self):
        text = self.made(WANTED)
        self.assertEqual(text.splitlines()[0], "# Paper, figure 1: the claim holds for Ringtap")
        for part in ("| lost |     7 | 0 to 4.00 |", "![One](one.svg)", "- Our machine is small.", "- run: here",
                     "| 2 | 4.00 |  5.00 |", "| other, 2 | 5.0 |"):  # fmt: skip
            self.assertIn(part, text)

    def test_the_list_of_pages_says_what_each_says_first(self):
        listed = page.index({"one": self.made(WANTED)})
        self.assertIn("- [Paper, figure 1: the claim holds for Ringtap](one.md)", listed)

    def test_data_made_alike_are_one_line(self):
        text = page.make({**WANTED, "plot": []}, "one.toml", ROWS, {"a": "x", "b": "y", "c": "x"}, lambda _: None)
        self.assertTrue(text.endswith("## Made by\n\n- a, c: x\n- b: y\n"), text)

    def test_lines_of_numbers_are_in_order(self):
        rows = {"run": list(reversed(ROWS["run"]))}
        text = page.make({**WANTED, "plot": []}, "one.toml", rows, {}, lambda _: None)
        self.assertLess(text.index("| 1 |"), text.index("| 2 |"))

    def test_an_unknown_word_is_an_error(self):
        self.assertRaises(judge.PageError, self.made, {**WANTED, "chekc": []})

    def test_a_plot_shows_each_line_and_repeats_to_the_byte(self):
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.skipTest("needs matplotlib (scripts/python-package lab)")
        with tempfile.TemporaryDirectory() as folder:
            both = [plot.draw(Path(folder), ROWS, {**WANTED["plot"][0], "name": name}) for name in ("a", "b")]
            one, other = (path.read_bytes() for path in both)
            self.assertEqual(one, other)
            for label in (b"ours", b"other"):
                self.assertIn(label, one)
            self.assertIsNone(plot.draw(Path(folder), {"run": []}, WANTED["plot"][0]))


class Sources(unittest.TestCase):
    def test_figures_of_a_record_are_medians_of_good_rows_and_sums_of_packets(self):
        case = {"contender": "tap x", "size": 64, "method": "rate", "rate": "1Gbps"}
        base = {"key": "k", "case": case, "group": "g", "offered": 10, "problems": []}
        rows = [{**base, "repetition": at, "lost": lost, "delivered_pps": 1e6 * (at + 1)}
                for at, lost in ((0, 0), (1, 1), (2, 5))]
        wrong = {**base, "repetition": 3, "lost": 10, "problems": ["it lied"]}
        rows += [wrong, {**wrong, "key": "never right"}]
        (found,) = sources._medians(rows)
        figures = [found[key] for key in ("delivered_mpps", "lost", "lost_sum", "offered_sum")]
        self.assertEqual(figures, [2, 1, 6, 30])
        # 64 bytes at 1 Gbit/s are 1.488 million a second; 2 million were delivered.
        self.assertAlmostEqual(found["of_link_percent"], 134.4)
        self.assertFalse(found["is_full"])
        (full,) = sources._medians([{**rows[0], "offered_pps": 1.46e6}])
        self.assertTrue(full["is_full"])
        self.assertEqual((found["series"], found["size"], found["kind"], found["good"]), ("tap x", 64, "ours", 3))
        (total,) = sources.totals([found, found])
        self.assertEqual((total["lost"], total["offered"], total["loss_percent"]), (12, 60, 20))

    def test_a_probe_that_falls_by_one_noisy_trial_is_steady(self):
        def line(name: str, values: list[float]) -> list[dict]:
            same = {"series": name, "load": "1", "cores": 1, "delivered": 8, "captured": 10}
            return [{**same, "rate": f"{at}pps", "read_pps": one} for at, one in enumerate(values)]

        noisy, falls = [10, 10, 10, 20, 20, 20, 20, 20, 9, 20, 9], [10, 20, 20, 20, 10, 10, 10, 10]
        rows = list(sources._curves(line("w", noisy) + line("k", falls), {"1, 1": "six"}))
        least = {series: min(row["of_most"] for row in rows if row["series"] == series) for series in "wk"}
        self.assertEqual(least, {"w": 1.0, "k": 0.5})
        self.assertEqual((rows[0]["figure"], rows[0]["captured"]), ("six", 12.5))
        self.assertAlmostEqual(rows[0]["in_vain_percent"], 20)

    def test_every_page_names_a_battery_that_can_be_read_and_known_data(self):
        known = contender.load_all([contender.FOLDER])
        for path in sorted(command.HERE.glob("*.toml")):
            wanted = tomllib.loads(path.read_text())
            names = set(wanted["data"])
            for each in wanted["data"].values():
                if name := each.get("battery") or Path(each.get("stored", "")).name:
                    battery.load(battery.FOLDER / f"{name}.toml", known)
            for part in ("check", "beside", "table", "plot"):
                for one in wanted.get(part, []):
                    sides = [one[key] for key in ("left", "right", "here") if isinstance(one.get(key), dict)] or [one]
                    for side in sides:
                        used = side["data"] if isinstance(side["data"], list) else [side["data"]]
                        self.assertLessEqual({name.removesuffix(", totals") for name in used}, names, path.name)


class Measuring(unittest.TestCase):
    """Batteries of a page: run, and kept with the results."""

    def measured(self, status: int, made: bool) -> dict[str, str]:
        """Files that are kept, after a run that ends so."""
        with tempfile.TemporaryDirectory() as folder:
            records, kept = Path(folder) / "records", Path(folder) / "kept"
            for old in ("2026-01-01T000000Z-vm-rings", "2026-09-09T000000Z-vm-rings-mix"):
                (records / old).mkdir(parents=True)

            def run(words: list[str], **_: object) -> SimpleNamespace:
                self.assertEqual(words[3:], ["run", "rings", "--ringtap", "/bin/ringtap"])
                if made:
                    (records / "2026-02-02T000000Z-vm-rings").mkdir()
                    for name in ("head.json", "rows.jsonl", "page.html"):
                        (records / "2026-02-02T000000Z-vm-rings" / name).write_text(name)
                return SimpleNamespace(returncode=status)

            with (
                mock.patch.object(command.subprocess, "run", run),
                mock.patch.object(command, "records", lambda: records),
                mock.patch.object(command.sources, "RECORDS", kept),
            ):
                command.measure({"data": {"a": {"battery": "rings"}, "b": {"rows": []}}}, Path("/bin/ringtap"))
            return {path.name: path.read_text() for path in (kept / "rings").iterdir()}

    def test_the_record_of_a_battery_is_kept_with_the_results(self):
        for status in (0, 1):
            self.assertEqual(self.measured(status, True), {"head.json": "head.json", "rows.jsonl": "rows.jsonl"})

    def test_a_battery_that_did_not_run_is_an_error(self):
        for status, made in ((2, True), (0, False)):
            self.assertRaises(judge.PageError, self.measured, status, made)


if __name__ == "__main__":
    unittest.main()
