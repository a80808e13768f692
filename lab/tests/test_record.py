# SPDX-License-Identifier: MIT OR Apache-2.0
"""Records on disk, what formatters make of them, and the comparison of two."""

import base64
import csv
import io
import json
import re
import tempfile
import unittest
from contextlib import redirect_stderr
from pathlib import Path
from unittest import mock

from ringtap_lab.formatters import compare, files, page, summary, tables
from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.record import ROWS, Record, RecordError
from ringtap_lab.manager.runner import hint_of, told

FACTS = {"cpu": "a CPU", "cores": 2, "virtual": False, "memory_mib": 1, "governor": "performance", "kernel": "6",
         "system": "Debian", "load_average": 0.1, "clock": {"difference_ms": 0.5, "uncertainty_ms": 0.1}}  # fmt: skip
CONTENDER = {"note": "<fast>", "command": "one {dev}", "server": "", "missing": "", "version": "1.2"}
HEAD = {"title": "A & B", "text": "[[case]]", "sender": "send", "machines": {"sensor": FACTS}, "layout": {},
        "contenders": {"one": CONTENDER, "two": {**CONTENDER, "missing": "not installed here: two"}}}  # fmt: skip


def row(contender: str, repetition: int, pps: float, problems: tuple[str, ...] = ()) -> dict:
    case = Case(contender)
    figures = {} if problems else {"delivered_pps": pps, "offered_pps": 2e6, "loss_percent": 50.0}
    return {"key": case.key, "case": vars(case), "group": case.group, "repetition": repetition, **figures,
            "readers": [{"delivered": 1}], "problems": list(problems)}  # fmt: skip


def record(rows: list[dict]) -> Record:
    folder = Path(tempfile.mkdtemp(prefix="lab-record-"))
    one = Record.create(folder, "some", HEAD)
    for each in rows:
        one.append(each)
    return one


ROWS_OF_TWO = [row("one", 0, 1.0e6), row("two", 0, 0, ("it lied",)), row("one", 1, 3.0e6), row("two", 1, 9e6)]


class Records(unittest.TestCase):
    def test_a_row_that_was_cut_short_is_no_row_and_the_next_one_is_whole(self):
        one = record(ROWS_OF_TWO[:1])
        with (one.folder / ROWS).open("a") as file:
            file.write('{"key": "ö')
        self.assertEqual(len(one.rows()), 1)
        one.append(ROWS_OF_TWO[1])
        self.assertEqual([each["case"]["contender"] for each in one.rows()], ["one", "two"])

    def test_a_row_that_the_disk_refuses_is_printed(self):
        one, said = record([]), io.StringIO()
        full = mock.patch.object(one, "_write", side_effect=OSError(28, "No space left on device"))
        with full, redirect_stderr(said), self.assertRaisesRegex(RecordError, "No space.*--resume"):
            one.append(ROWS_OF_TWO[0])
        self.assertEqual(json.loads(said.getvalue()), ROWS_OF_TWO[0])

    def test_a_folder_that_is_no_record_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertRaises(RecordError, Record(Path(folder)).head)
            (Path(folder) / "head.json").write_text('{"schema": 99}')
            with self.assertRaisesRegex(RecordError, "schema 99"):
                Record(Path(folder)).head()

    def test_a_search_begins_where_earlier_ones_ended(self):
        rows = [{"key": "a", "lossless_pps": pps} for pps in (1.0, 5.0, 2.0, 0.0)] + [{"key": "b", "lossless_pps": 9.0}]
        self.assertEqual(hint_of(rows, "a"), 2.0)
        self.assertIsNone(hint_of(rows, "c"))


class Formatters(unittest.TestCase):
    def test_a_row_at_fault_is_listed_and_in_no_figure(self):
        first, second = summary.entries(ROWS_OF_TWO)
        self.assertEqual(first.spread("delivered_pps"), (2.0e6, 1.0e6, 3.0e6))
        self.assertEqual((second.values("delivered_pps"), second.bad), ([9e6], [0]))
        text = tables.markdown(record([]).head(), ROWS_OF_TWO)
        self.assertIn("- 64 B, max, 2 s, two, repetition 1: it lied", text)
        self.assertIn("| 2.000 (1.000 to 3.000) |", text)
        self.assertIn("two: not installed here", text)
        self.assertIn("AT FAULT: it lied", told(ROWS_OF_TWO[1]))

    def test_the_aims_of_the_battery_stand_above_the_figures(self):
        aim = "[[aim]]\ntext = 'fast'\nfigure = 'delivered_pps'\nof = { contender = 'one' }\nleast = 3e6\n"
        head = {**record([]).head(), "text": aim}
        self.assertIn("| fast | ≥ 3 Mpps | 2 Mpps   | MISSED |", tables.markdown(head, ROWS_OF_TWO))
        self.assertIn("<td>fast</td><td>≥ 3 Mpps</td><td>2 Mpps</td><td>MISSED</td>", page.html(head, ROWS_OF_TWO, []))

    def test_rows_that_other_work_disturbed_are_noted(self):
        quiet = {"elapsed_ns": 10**9, "disturbed_ms": 40, "stolen_ms": 0, "problems": []}
        self.assertEqual(summary.notes([quiet]), [])
        (note,) = summary.notes([quiet, {**quiet, "disturbed_ms": 60}])
        self.assertIn("in 1 of 2 trials other work took more than 5%", note)
        self.assertIn("1 of 4 rows are at fault", tables.markdown(record([]).head(), ROWS_OF_TWO))

    def test_csv_and_json_hold_every_row(self):
        lines = list(csv.DictReader(io.StringIO(tables.as_csv(ROWS_OF_TWO))))
        self.assertEqual([line["problems"] for line in lines], ["", "it lied", "", ""])
        self.assertEqual([line["case_contender"] for line in lines], ["one", "two", "one", "two"])
        found = json.loads(tables.as_json(HEAD, ROWS_OF_TWO))
        self.assertEqual((found["type"], len(found["rows"])), ("lab_record", 4))

    def test_every_format_is_written_and_what_is_not_installed_is_said(self):
        said: list[str] = []
        paths = {path.name for path in files.write_all(record(ROWS_OF_TWO), said.append)}
        self.assertLessEqual({"page.html", "record.md", "record.json", "rows.csv"}, paths)
        self.assertEqual("rows.parquet" in paths, not any("pyarrow" in one for one in said))
        self.assertEqual("plot-64-B-max-2-s.svg" in paths, not any("matplotlib" in one for one in said))

    def test_the_page_is_one_file_and_shows_what_programs_print_as_text(self):
        text = page.html(record([]).head(), [*ROWS_OF_TWO, row("one", 2, 0, ("<script>",))], [])
        self.assertIn("&lt;script&gt;", text)
        self.assertNotIn("<script>", text)
        for part in ("A &amp; B", "a CPU", "1.2", "[[case]]", "Raw rows", "9,000,000.000"):
            self.assertIn(part, text)

    def test_each_plot_of_the_page_is_an_image_of_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            plots = [Path(folder) / name for name in ("a.svg", "a.png", "b.svg")]
            for path in plots:
                path.write_text(f"<svg id='same'>{path.name}</svg>")
            text = page.html(record([]).head(), ROWS_OF_TWO, plots)
        pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', text)
        self.assertEqual([base64.b64decode(one).decode() for one in pictures],
                         [f"<svg id='same'>{name}</svg>" for name in ("a.svg", "b.svg")])
        self.assertNotIn("<svg", text)

    def test_a_record_without_rows_has_tables_too(self):
        head = record([]).head()
        self.assertIn("None: all accounts agree", tables.markdown(head, []))
        self.assertIn("Raw rows", page.html(head, [], []))
        self.assertTrue(tables.as_csv([]))


class Compare(unittest.TestCase):
    def test_no_difference_is_shown_where_the_interval_holds_one(self):
        found = compare.interval([1.0, 1.1, 0.9], [1.05, 0.95, 1.1])
        self.assertEqual(found.verdict, "no difference shown")
        self.assertLess(found.low, 1)
        self.assertGreater(found.high, 1)

    def test_a_difference_beyond_the_noise_is_shown(self):
        self.assertEqual(compare.interval([1.0, 1.1, 0.9], [2.0, 2.2, 1.9]).verdict, "second is higher")
        self.assertEqual(compare.interval([2.0, 2.2, 1.9], [1.0, 1.1, 0.9]).verdict, "second is lower")

    def test_an_interval_holds_the_truth_in_95_of_100_samples(self):
        import random

        chance = random.Random(1)
        held = 0
        for _ in range(2000):
            first, second = ([chance.lognormvariate(0, 0.1) for _ in range(5)] for _ in range(2))
            found = compare.interval(first, second)
            held += found.low <= 1 <= found.high
        self.assertGreater(held / 2000, 0.935)
        self.assertLess(held / 2000, 0.985)

    def test_too_few_values_and_rates_of_zero_have_no_interval(self):
        self.assertIsNone(compare.interval([1.0], [1.0, 2.0]))
        self.assertIsNone(compare.interval([1.0, 0.0], [1.0, 2.0]))

    def test_records_are_compared_case_by_case(self):
        first = record([row("one", n, 1e6 + n) for n in range(3)] + [row("two", 0, 1e6)])
        second = record([row("one", n, 2e6 + n) for n in range(3)])
        text = compare.text(first, second)
        self.assertIn("second is higher", text)
        self.assertIn("1 cases are in one record only", text)
        self.assertIn("no case in common", compare.text(first, record([])))
