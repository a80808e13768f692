# SPDX-License-Identifier: MIT OR Apache-2.0
"""The mix of scenario `shunting`, and what is computed of it."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from ringtap_lab.scenarios import shunting, tables


class Shunting(unittest.TestCase):
    def test_few_flows_carry_most_bytes(self) -> None:
        sizes = shunting.sizes()
        self.assertEqual(shunting.ELEPHANTS, len(sizes) // 20)
        self.assertEqual(sum(sizes[: shunting.ELEPHANTS]) / sum(sizes), 0.8)

    def test_the_file_holds_every_packet(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "mix.pcap"
            length = shunting.make(file)
            self.assertEqual(file.stat().st_size, 24 + sum(shunting.sizes()) * (16 + length))

    def test_a_packet_that_begins_within_the_limit_is_kept(self) -> None:
        # 16,384 / 492 is 33.3: 34 packets begin within 16 KiB.
        mice = (shunting.FLOWS - shunting.ELEPHANTS) * shunting.MOUSE_PACKETS
        self.assertEqual(shunting.kept(492), mice + 34 * shunting.ELEPHANTS)
        self.assertEqual(shunting.kept(512), mice + 32 * shunting.ELEPHANTS)

    def test_the_table_has_rates_and_bytes(self) -> None:
        one = {"median": 1.5, "min": 1.0, "max": 2.0}
        reader = {"summary": {"lossless_pps": one}, "rounds": [], "missing": None}
        found = {
            "size": 492,
            "rules": {"no rules": {"summary": {"mpps": one}}},
            "elephants": {"every packet": reader},
            "recorder": {"file_bytes": 1000, "wanted_file_bytes": 1000},
        }
        text = tables.shunting(found)
        self.assertIn("1.500 (1.000 to 2.000)", text)
        self.assertEqual(text.count("1,000"), 2)


if __name__ == "__main__":
    unittest.main()
