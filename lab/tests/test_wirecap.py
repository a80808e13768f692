# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the WireCAP figures claim, and how they are written down."""

import tempfile
import unittest
from pathlib import Path

from ringtap_lab.scenarios import wirecap, wirecap_report


def found(large: float = 0.0, advanced: float = 0.0, longest: int = 26_624) -> dict:
    """Figures as the runs give them."""
    skew = {"offloaded": 0.4, "disordered": 0.3, "max_chunks": 7}
    return {
        "beside": [{"name": "DNA", "P": 6000, "paper": 15.0, "ring_only": 0.8, "with_fifo": 0.14}],
        "no_load": [{"P": 1000, "pool": 0, "ring": 0, "copy": 0.5}],
        "loaded": [{"P": 100_000, "small": 0.7, "large": large, "ring": 0.9, "copy": 0.9}],
        "product": [{"P": 1000, "(64,400)": 0.700, "(256,100)": 0.704}],
        "absorption": [{"gbps": 10, "reader": 38_844, "room": 25_600, "packets": 256,
                        "formula": 25_667.0, "with_ring": 26_694.0, "longest": longest}],
        "skew": {"7:1:1:1": [{"T": None, "loss": 0.43, **skew},
                             {"T": 60, "loss": advanced, **skew}]},
    }


class Claims(unittest.TestCase):
    def test_what_was_promised_holds_for_what_was_measured(self):
        self.assertEqual(wirecap.claims(found()), [])

    def test_a_loss_where_none_may_be_is_found(self):
        for wrong in (found(large=0.1), found(advanced=1e-6), found(longest=20_000)):
            self.assertEqual(len(wirecap.claims(wrong)), 1)

    def test_unequal_losses_of_equal_pools_are_found(self):
        wrong = found()
        wrong["product"][0]["(256,100)"] = 0.706
        self.assertEqual(len(wirecap.claims(wrong)), 1)


class Page(unittest.TestCase):
    def test_only_nothing_is_written_as_nothing(self):
        self.assertEqual(wirecap_report.percent(0), "0")
        self.assertEqual(wirecap_report.percent(1e-9), "0.00 %")

    def test_tables_have_a_cell_for_each_column(self):
        lines = wirecap_report.tables(found()).splitlines()
        blocks = "\n".join(lines).split("\n\n")
        for block in blocks:
            cells = {line.count("|") for line in block.splitlines() if line.startswith("|")}
            self.assertLessEqual(len(cells), 1, block)

    def test_tables_replace_those_between_the_marks(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            page.write_text(f"a\n{wirecap_report.BEGIN}\nold\n{wirecap_report.END}\nz\n")
            for text in ("new", "newer"):
                wirecap_report.replace(page, text)
                self.assertIn(text, page.read_text())
            self.assertNotIn("old", page.read_text())
            self.assertTrue(page.read_text().startswith("a\n"))
            self.assertTrue(page.read_text().endswith("\nz\n"))
            page.write_text("nothing")
            with self.assertRaises(ValueError):
                wirecap_report.replace(page, "new")


if __name__ == "__main__":
    unittest.main()
