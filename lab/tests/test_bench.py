# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command `bench`: what it measures, its page, and the part of it in the README."""

import argparse
import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from ringtap_lab import bench
from ringtap_lab.manager import battery, contender
from ringtap_lab.manager.inventory import InventoryError
from tests.test_record import record, row

KNOWN = contender.load_all([contender.FOLDER])


def words(**more: object) -> argparse.Namespace:
    return argparse.Namespace(**{"quick": False, "repetitions": None, "seconds": None, **more})


class Choice(unittest.TestCase):
    def test_all_batteries_are_there_and_whole_unless_something_is_named(self):
        whole = [battery.load(battery.FOLDER / f"{name}.toml", KNOWN) for name in bench.BATTERIES]
        self.assertEqual(bench.chosen([], KNOWN), whole)
        self.assertEqual([bench.changed(one, words()) for one in whole], whole)
        self.assertEqual([one.name for one in bench.chosen(["pool", "idle"], KNOWN)], ["idle", "pool"])

    def test_batteries_with_virtual_machines_are_measured_only_if_they_are_named(self):
        self.assertFalse(set(bench.VM_BATTERIES) & set(bench.BATTERIES))
        found = bench.chosen([*bench.VM_BATTERIES], KNOWN)
        self.assertEqual([one.name for one in found], [*bench.VM_BATTERIES])

    def test_a_named_contender_brings_the_batteries_it_is_in_and_the_least_work(self):
        found = {one.name: {case.contender for case, _ in one.cases} for one in bench.chosen(["packet"], KNOWN)}
        self.assertEqual(found["capture"], {"packet", "XDP_DROP floor"})
        self.assertEqual(found["idle"], {"packet"})
        self.assertNotIn("readers", found)

    def test_what_is_not_there_is_refused(self):
        with self.assertRaisesRegex(InventoryError, "no 'tcpdmp'"):
            bench.chosen(["tcpdmp"], KNOWN)
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(bench.main(["--only", "tcpdmp"]), 2)

    def test_words_go_before_what_quick_means_and_files_are_sent_whole(self):
        (one,) = bench.chosen(["cutoff"], KNOWN)
        quick = bench.changed(one, words(quick=True, repetitions=3))
        self.assertEqual([(case.seconds, count) for case, count in quick.cases], [(100, 3)] * 3)
        (one,) = bench.chosen(["find"], KNOWN)
        quick = bench.changed(one, words(quick=True))
        self.assertEqual([it.parameters["files"] for it in quick.files], [4, 8])
        self.assertNotEqual(quick, one)


class Page(unittest.TestCase):
    def test_a_page_has_the_aims_and_tables_of_every_record(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("idle", "pool"):
                made = record([row("one", 0, 1e6)])
                (Path(folder) / f"{name}.toml").write_text("[[aim]]\ntext = 'fast'\nfigure = 'delivered_pps'\n"
                                                           "of = { contender = 'one' }\nleast = 3e6\n")  # fmt: skip
                head = made.head() | {"battery": name, "text": "# Without the aim of today.\n"}
                (made.folder / "head.json").write_text(json.dumps(head))
                made.folder.rename(Path(folder) / name)
            with mock.patch.object(bench.battery, "FOLDER", Path(folder)):
                text = bench.page(Path(folder))
        self.assertIn("| [pool](#pool) | fast | ≥ 3 Mpps | 1 Mpps   | MISSED |", text)
        self.assertLess(text.index("| [idle](#idle)"), text.index("## pool"))
        self.assertEqual(text.count("### 64 B, max, 2 s"), 2)

    def test_the_readme_shows_medians_and_the_senders_limit(self):
        rows = []
        for name, count, pps in (("ringtap hub", 1, 6e6), ("ringtap hub", 8, 5e6), ("AF_PACKET", 8, 5e5)):
            case = battery.Case(name, "lossless", readers=count)
            found = {"lossless_pps": pps, "limited": name == "ringtap hub", "goals": [{"loss": 0.0}]}
            rows.append({**row(name, 0, 0), "case": vars(case), "key": case.key, "group": case.group, **found})
        text = bench.readme_part(record(rows))
        self.assertRegex(text, r"\| 8 readers +\| +5.00 \* \| +0.50 \| +– \|")
        self.assertEqual(text.count("\n| "), 5)

    def test_refreshing_the_readme_changes_only_what_is_between_the_markers(self):
        with tempfile.TemporaryDirectory() as folder:
            readme = Path(folder) / "README.md"
            readme.write_text(f"before\n{bench.BEGIN}\nold\n{bench.END}\nafter\n")
            bench.refresh(readme, "| a table |")
            once = readme.read_text()
            bench.refresh(readme, "| a table |")
            self.assertEqual(readme.read_text(), once)
        self.assertTrue(once.startswith(f"before\n{bench.BEGIN}\n|"))
        self.assertTrue(once.endswith(f"{bench.END}\nafter\n"))
        self.assertNotIn("old", once)

    def test_a_readme_without_its_markers_is_left_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            readme = Path(folder) / "README.md"
            for text in ("nothing", bench.END + bench.BEGIN, bench.BEGIN * 2 + bench.END):
                readme.write_text(text)
                self.assertRaises(ValueError, bench.refresh, readme, "| a table |")
                self.assertEqual(readme.read_text(), text)


if __name__ == "__main__":
    unittest.main()
