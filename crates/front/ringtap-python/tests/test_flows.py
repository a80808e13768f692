# SPDX-License-Identifier: MIT OR Apache-2.0
"""Flow records as tables."""

import _thread
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest
from typing import Any

import captures
import pyarrow
import pyarrow.parquet

import ringtap


class Flows(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = str(self.folder / "made.pcap")
        captures.write(self.file, [captures.udp(number % 40, payload=number % 64) for number in range(2000)])

    def test_flows_of_a_file_are_those_of_the_probes_parquet_file(self) -> None:
        table = pyarrow.Table.from_batches(list(ringtap.flows(self.file)))
        destination = f"parquet:{self.folder}/results"
        command = [captures.ringtap_program(), "probe", "-r", self.file, "--export", destination]
        subprocess.run(command, check=True, capture_output=True)
        written = pyarrow.parquet.read_table(self.folder / "results" / "flows")
        self.assertEqual(table.schema, written.schema.remove_metadata())
        by_port = [("source_port", "ascending")]
        self.assertEqual(table.sort_by(by_port).to_pylist(), written.sort_by(by_port).to_pylist())
        self.assertEqual((table.num_rows, sum(table["forward_packets"].to_pylist())), (40, 2000))

    def test_flows_come_while_the_capture_runs_and_its_stop_ends_them(self) -> None:
        with ringtap.flows("sim:10kpps?flows=16", idle=5, active=0.5, workers=2) as flows:
            rows = 0
            for table in flows:
                rows += table.num_rows
                if rows >= 32:
                    flows.stop()
            self.assertGreaterEqual(rows, 48)
            counters = flows.counters
        self.assertEqual(counters["flows"]["records"], rows)
        self.assertEqual(counters["captured"], counters["analysed"])

    def test_a_filter_and_a_file_without_flows(self) -> None:
        flows = ringtap.flows(self.file, filter="udp src port 1003")
        self.assertEqual(sum(table.num_rows for table in flows), 1)
        self.assertEqual(list(ringtap.flows(self.file, filter="tcp")), [])

    def test_programs_read_flows_as_one_stream(self) -> None:
        import duckdb
        import polars

        flows = ringtap.flows(self.file)
        found = duckdb.sql("select count(*), sum(forward_packets) from flows").fetchall()
        self.assertEqual(found, [(40, 2000)])
        self.assertEqual(polars.DataFrame(ringtap.flows(self.file))["forward_packets"].sum(), 2000)
        self.assertEqual(flows.counters["flows"]["records"], 40)

    def test_errors_have_their_classes(self) -> None:
        wrong: list[tuple[str, dict[str, Any], type[Exception]]] = [
            ("sim:1kpps?unknown=1", {}, ringtap.DeviceError),
            ("pcap:/no/such.pcap", {}, ringtap.OpenError),
            ("sim:1kpps", {"filter": "tcp porto 5"}, ringtap.FilterError),
            ("hub:ids", {"socket": "/no/such.sock"}, ringtap.HubError),
            ("sim:1kpps", {"idle": -1.0}, ValueError),
            ("sim:1kpps", {"workers": 0}, ValueError),
        ]
        for device, options, kind in wrong:
            with self.subTest(device=device, options=options), self.assertRaises(kind):
                ringtap.flows(device, **options)
        os.truncate(self.file, os.path.getsize(self.file) - 1)
        with self.assertRaises(ringtap.SourceError):
            list(ringtap.flows(self.file))

    def test_closed_flows_say_so_and_end_a_wait(self) -> None:
        flows = ringtap.flows("sim:1kpps", idle=100)
        threading.Timer(0.3, flows.stop).start()
        self.assertEqual(sum(table.num_rows for table in flows), 1)
        flows.close()
        flows.close()
        with self.assertRaises(ringtap.ClosedError):
            next(iter(flows))

    def test_control_c_ends_a_wait_and_an_exception_ends_the_probe(self) -> None:
        with ringtap.flows("sim:1kpps", idle=100) as flows:
            threading.Timer(0.3, _thread.interrupt_main).start()
            with self.assertRaises(KeyboardInterrupt):
                next(iter(flows))
        with self.assertRaises(ZeroDivisionError), ringtap.flows(self.file) as flows:
            for _table in flows:
                1 / 0
        with self.assertRaises(ringtap.ClosedError):
            next(iter(flows))

    def test_a_child_of_fork_is_refused_and_the_parent_goes_on(self) -> None:
        flows = ringtap.flows("sim:1kpps", idle=100)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                next(iter(flows))
            except ringtap.ForkError:
                status = 0
            del flows
            os._exit(status)
        _, status = os.waitpid(child, 0)
        self.assertEqual(status, 0)
        before = flows.counters["captured"]
        while flows.counters["captured"] == before:
            pass
        flows.close()

    def test_the_interpreter_ends_with_live_flows(self) -> None:
        program = "import ringtap; f = ringtap.flows('sim:max', active=0.2); t = next(f.tables())"
        ended = captures.in_another_python(program)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
