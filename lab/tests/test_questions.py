# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the scenarios `python`, `parquet`, `index`, `find` and `record-index` compute and check."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.trial import account
from ringtap_lab.scenarios import goals, mix, python_bench, questions, report, turns

SPREAD = {"median": 1.5, "min": 1.0, "max": 2.0}


def rounds(key: str, *values: float) -> list[dict]:
    return [{"round": number, key: value, "problems": []} for number, value in enumerate(values)]


def entry(key: str, *values: float) -> dict:
    return {"command": "", "missing": None, "rounds": rounds(key, *values), "summary": {key: SPREAD}}


def live(*values: float) -> dict:
    each = [{**row, "limited": False} for row in rounds("lossless_pps", *values)]
    return {"counts": {"1": {"rounds": each, "summary": {"lossless_pps": SPREAD}}}, "missing": None}


class Questions(unittest.TestCase):
    def test_a_reader_must_have_read_what_its_counters_say(self) -> None:
        counters = {"balanced": True, "delivered": 5, "offered": 5, "dropped": {}}
        for size, problems in ((300, []), (299, ["it read 299 bytes of 5 packets of 60"])):
            text = json.dumps(counters) + "\n" + json.dumps({"read": 5, "bytes": size, "seconds": 1.0})
            sent = {"sent": 5, "elapsed_ns": 10**9}
            row = account(turns.KNOWN[python_bench.NUMPY], Case("any"), [{"output": text}], sent, 5)
            self.assertEqual(row["problems"], problems)

    def test_the_flow_that_is_sought_is_in_one_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            flows, questions.FLOWS = questions.FLOWS, 50
            try:
                flow = questions._recordings(Path(folder), 0.002)
            finally:
                questions.FLOWS = flows
            address = (0x0A000000 + flow // 4).to_bytes(4, "big")
            files = sorted(Path(folder).iterdir())
            holding = [number for number, file in enumerate(files) if address in file.read_bytes()]
            self.assertGreater(len(files), 2)
            self.assertEqual(holding, [flow // 50])

    def test_only_the_recordings_leave_the_cache(self) -> None:
        def resident(file: Path) -> int:
            told = subprocess.run(["fincore", "-bnr", "-o", "RES", file], capture_output=True, text=True, check=True)
            return int(told.stdout or 0)

        # A tmpfs is all cache, and forgets nothing.
        with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
            files = [Path(folder) / "in" / "a.pcap", Path(folder) / "b.pcap"]
            files[0].parent.mkdir()
            for file in files:
                with file.open("wb") as out:
                    out.write(bytes(1 << 20))
                    os.fsync(out.fileno())
            questions.forget(files[0].parent)
            self.assertEqual([resident(file) for file in files], [0, 1 << 20])

    def test_a_later_file_has_other_flows_and_later_times(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "a.pcap"
            mix.make(file, 20, 3, first=400, start=1000.0)
            first = file.read_bytes()[24:28]
            self.assertGreaterEqual(int.from_bytes(first, "little"), mix.START + 1000)

    def test_goals_are_ratios_of_the_rounds(self) -> None:
        found = {
            "python": {
                "live": {"size": 64, "contenders": {
                    python_bench.COUNT: live(4.0, 2.0), python_bench.NUMPY: live(2.0, 2.0),
                }},
                "files": {"arrow": entry("pps", 200.0, 400.0), "scapy": entry("pps", 1.0, 1.0), "packets": {
                    **entry("pps", 2e6), "summary": {"pps": {**SPREAD, "median": 2e6}},
                }},
            },
            "parquet": {
                questions.COUNT.name: entry("mb_per_s", 10.0), questions.PARQUET.name: entry("mb_per_s", 8.0),
            },
            "index": {questions.INDEX.name: {"summary": {"index_percent": SPREAD}, "rounds": []}},
            "find": {"gb": 1.0, "contenders": {
                questions.FIND.name: entry("seconds", 0.01), questions.TCPDUMP.name: entry("seconds", 2.0),
                questions.WARM_FIND.name: entry("seconds", 0.001), questions.WARM_TCPDUMP.name: entry("seconds", 2.0),
            }},
        }  # fmt: skip
        verdicts = {one["goal"]: one["figure"] for one in goals.evaluate(found)}
        (beside,) = [one["beside"] for one in goals.evaluate(found) if "cold caches" in one["goal"]]
        self.assertEqual(beside, "1/2000 while the programs are cached, 1500.0 ms and 1.50 s")
        wanted = {
            "numpy() from a hub": 0.75, "file against scapy": 300.0, "file against pyshark": None,
            "packet by packet": 2.0, "MB/s against ringtap count": 0.8, "cold caches": 0.005,
            "size of indexes": 1.5, "record --index": None,
        }  # fmt: skip
        for part, figure in wanted.items():
            with self.subTest(part):
                (value,) = [value for name, value in verdicts.items() if part in name]
                self.assertEqual(value, figure)
        shown = {key: render for key, _, render in report.SECTIONS}
        for key in ("python", "parquet", "find"):
            self.assertIn(" to ", shown[key](found[key]))
        self.assertIn("1.50 (1.00 to 2.00)", shown["index"](found["index"]))


if __name__ == "__main__":
    unittest.main()
