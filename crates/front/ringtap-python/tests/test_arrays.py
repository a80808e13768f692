# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arrays and tables of batches, and programs that read them."""

import gc
import os
import tempfile
import unittest

import captures
import numpy
import pyarrow

import ringtap


def one_batch(device: str, **options: object) -> ringtap.Batch:
    """All packets of a small capture."""
    with ringtap.open(device, **options) as capture:
        return next(capture.batches(packets=1 << 30, timeout=30))


class Arrays(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "made.pcap")
        self.frames = [captures.udp(number, payload=number % 64) for number in range(2000)]
        captures.write(self.file, self.frames)

    def test_slots_of_one_chunk_are_in_place_and_have_the_packets_values(self) -> None:
        with ringtap.open(self.file) as capture:
            batch = next(capture.batches())
        slots = batch.numpy()
        self.assertEqual(len(slots), len(batch))
        self.assertFalse(slots.flags.owndata or slots.flags.writeable)
        again = batch.numpy()
        self.assertEqual(slots.ctypes.data, again.ctypes.data)
        self.assertEqual(list(slots["time_ns"]), [packet.time_ns for packet in batch])
        self.assertEqual(list(slots["captured"] & 0xFFFFFF), [packet.captured for packet in batch])
        del batch, capture
        gc.collect()
        self.assertEqual(slots["wire_length"][1], len(self.frames[1]))

    def test_slots_leave_out_packets_that_do_not_pass(self) -> None:
        slots = one_batch(self.file, filter="udp src port 1003 or udp src port 1900").numpy()
        self.assertEqual(list(slots["time_ns"]), [captures.FIRST_NS + at * 1000 for at in (3, 900)])

    def test_a_table_has_the_columns_of_the_documentation(self) -> None:
        batch = one_batch(self.file)
        table = batch.arrow(text=True, community_id=True, inner=True)
        self.assertEqual(table.num_rows, 2000)
        self.assertEqual(table.schema.field("time").type, pyarrow.timestamp("ns", "UTC"))
        self.assertEqual(table["src_port"].to_pylist(), [1000 + at for at in range(2000)])
        self.assertEqual(table["src"][0].as_py(), "10.0.0.1")
        self.assertEqual(table["payload_offset"][0].as_py(), 42)
        self.assertTrue(table["community_id"][0].as_py().startswith("1:"))
        self.assertEqual([len(one) for one in table["data"].to_pylist()], [len(one) for one in self.frames])
        self.assertEqual(table["data"][77].as_py(), self.frames[77])
        binary = batch.arrow(data=False)
        self.assertEqual(binary["dst"][0].as_py(), bytes([10, 0, 0, 2]))
        self.assertNotIn("data", binary.schema.names)
        self.assertEqual(batch.arrow(headers=False, data=False).num_columns, 7)

    def test_bytes_in_a_table_outlive_batch_and_capture(self) -> None:
        data = one_batch(self.file).arrow()["data"]
        gc.collect()
        self.assertEqual(data[1999].as_py(), self.frames[1999])

    def test_arrays_that_die_give_their_memory_back(self) -> None:
        kept, packets = [], 0
        # Four times what the pool holds.
        with ringtap.open("sim:max?burst=200000&pool=4MiB") as capture:
            for batch in capture.batches(packets=1000, timeout=10):
                packets += len(batch)
                kept.append(batch.arrow())
                if len(kept) == 10:
                    kept.clear()
            self.assertEqual((packets, capture.counters["delivered"]), (200000, 200000))

    def test_pandas_polars_and_duckdb_read_a_batch(self) -> None:
        import duckdb
        import pandas
        import polars

        batch = one_batch(self.file)
        columns = batch.columns(text=True, data=False)
        self.assertEqual(polars.DataFrame(columns)["wire_length"].sum(), sum(map(len, self.frames)))
        frame = batch.arrow(text=True, data=False).to_pandas()
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual(frame["dst_port"].unique().tolist(), [53])
        packets = batch.arrow(text=True, data=False)
        found = duckdb.sql("select count(*), min(src_port) from packets").fetchall()
        self.assertEqual((found, packets.num_rows), ([(2000, 1000)], 2000))

    def test_values_are_numpys_of_the_same_packets(self) -> None:
        batch = one_batch(captures.SIM.format(5000))
        table, slots = batch.arrow(), batch.numpy()
        self.assertTrue(numpy.array_equal(table["hash"].to_numpy(zero_copy_only=False), slots["hash"]))
        self.assertTrue(numpy.array_equal(table["wire_length"].to_numpy(), slots["wire_length"]))


if __name__ == "__main__":
    unittest.main()
