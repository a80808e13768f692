# SPDX-License-Identifier: MIT OR Apache-2.0
"""The mix of scenario `shunting`, and what is computed of it."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from ringtap_lab.scenarios import goals, shunting, tables


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
            "by_hub": {"readers: 8": {"summary": {"mpps": {"median": 0.14, "min": 0.13, "max": 0.15}}}},
            "elephants": {"every packet": reader},
            "recorder": {"file_bytes": 1000, "wanted_file_bytes": 1000},
        }
        text = tables.shunting(found)
        self.assertIn("1.500 (1.000 to 2.000)", text)
        self.assertEqual(text.count("1,000"), 2)
        self.assertRegex(text, r"readers: 8 +\| +0.140 \(0.130 to 0.150\)")

    def test_goals_find_rules_and_rates(self) -> None:
        rates = [{"round": 0, "lossless_pps": pps, "problems": []} for pps in (1e5, 8e5)]
        found = {"shunting": {
            "by_hub": {"readers: 8": {"summary": {"mpps": {"median": 0.14}}}},
            "elephants": {name: {"rounds": [row]} for name, row in zip((shunting.ALL, shunting.CUT), rates)},
        }}  # fmt: skip
        figures = {one["goal"]: (one["figure"], one["verdict"]) for one in goals.evaluate(found)}
        wanted = {
            "eight readers set together": (0.14, "met"), "that one reader sets in a second through": (
                None, "not measured"), "rate with a cut-off against without": (8.0, "met"),
        }  # fmt: skip
        for part, one in wanted.items():
            self.assertEqual([figure for goal, figure in figures.items() if part in goal], [one])


if __name__ == "__main__":
    unittest.main()
