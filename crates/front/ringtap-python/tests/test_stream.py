# SPDX-License-Identifier: MIT OR Apache-2.0
"""Captures as streams of record batches."""

import os
import tempfile
import time
import unittest
from typing import Any

import captures
import pyarrow

import ringtap


class Streams(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "made.pcap")
        self.frames = [captures.udp(number % 40, payload=number % 64) for number in range(2000)]
        captures.write(self.file, self.frames)

    def test_duckdb_scans_a_running_capture(self) -> None:
        import duckdb

        with ringtap.open(captures.SIM.format(200000) + "&pool=4MiB") as capture:
            packets = capture.reader(text=True)
            found = duckdb.sql("select count(*), count(distinct src), sum(wire_length) from packets").fetchall()
            self.assertEqual(found, [(200000, 16, 200000 * 60)])
            self.assertEqual((capture.counters["delivered"], packets is None), (200000, False))

    def test_duckdb_scans_a_search(self) -> None:
        import duckdb

        found_packets = ringtap.find(self.file, "udp src port 1003").reader(data=True)
        found = duckdb.sql("select count(*), min(octet_length(data)) from found_packets").fetchall()
        self.assertEqual((found, found_packets is None), ([(50, min(map(len, self.frames[3::40])))], False))

    def test_polars_pandas_and_pyarrow_read_a_stream(self) -> None:
        import pandas
        import polars

        with ringtap.open(self.file) as capture:
            frame = polars.DataFrame(capture.reader(text=True))
        self.assertEqual((len(frame), frame["wire_length"].sum()), (2000, sum(map(len, self.frames))))
        with ringtap.open(self.file) as capture:
            frame = pyarrow.table(capture.reader(text=True)).to_pandas()
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual(sorted(frame["src_port"].unique()), list(range(1000, 1040)))
        with ringtap.open(self.file) as capture:
            reader = pyarrow.RecordBatchReader.from_stream(capture.reader(packets=100, data=True))
            self.assertEqual([one for batch in reader for one in batch["data"].to_pylist()], self.frames)

    def test_a_stream_ends_at_its_limit_or_after_its_duration(self) -> None:
        with ringtap.open("sim:100kpps") as capture:
            self.assertEqual(pyarrow.table(capture.reader(limit=12345)).num_rows, 12345)
            begun = time.monotonic()
            rows = pyarrow.table(capture.reader(duration=0.5)).num_rows
            self.assertGreaterEqual(time.monotonic() - begun, 0.5)
            self.assertGreater(rows, 0)
            self.assertEqual(pyarrow.table(capture.reader(limit=0)).num_rows, 0)

    def test_a_wait_without_packets_gives_empty_record_batches(self) -> None:
        with ringtap.open("sim:1kpps", filter="ip6") as capture:
            reader = pyarrow.RecordBatchReader.from_stream(capture.reader(timeout=0.1))
            self.assertEqual([reader.read_next_batch().num_rows for _ in range(3)], [0, 0, 0])

    def test_errors_come_through_with_their_text(self) -> None:
        capture = ringtap.open("sim:1kpps")
        reader = pyarrow.RecordBatchReader.from_stream(capture.reader())
        capture.close()
        with self.assertRaisesRegex(Exception, "the capture is closed"):
            reader.read_next_batch()
        os.truncate(self.file, os.path.getsize(self.file) - 1)
        with ringtap.open(self.file) as capture, self.assertRaisesRegex(Exception, "made.pcap"):
            pyarrow.table(capture.reader())
        options: list[dict[str, Any]] = [{"packets": -1}, {"timeout": -1.0}, {"columns": 7}]
        for wrong in options:
            with self.subTest(wrong=wrong), self.assertRaises((OverflowError, ValueError, TypeError)):
                capture.reader(**wrong)

    def test_the_interpreter_ends_with_a_live_stream(self) -> None:
        program = (
            "import pyarrow, ringtap; c = ringtap.open('sim:max');"
            "r = pyarrow.RecordBatchReader.from_stream(c.reader(data=True)); b = r.read_next_batch()"
        )
        ended = captures.in_another_python(program)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
