# SPDX-License-Identifier: MIT OR Apache-2.0
"""Captures: packets, counters, filters, ends, errors, threads, fork and signals."""

import _thread
import asyncio
import doctest
import gzip
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import captures
import ringtap


class Packets(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = os.path.join(self.folder.name, "made.pcap")
        self.frames = [captures.udp(number, payload=18 + number) for number in range(1000)]
        captures.write(self.file, self.frames)

    def test_packets_are_those_of_the_file(self) -> None:
        with ringtap.open(self.file) as capture:
            for number, packet in enumerate(capture):
                self.assertEqual(packet.data, self.frames[number])
                self.assertEqual(bytes(packet), self.frames[number])
                self.assertEqual(packet.time_ns, captures.FIRST_NS + number * 1000)
                self.assertEqual(packet.wire_length, len(self.frames[number]))
                self.assertEqual((packet.vlan, packet.sequence), (None, number))
            self.assertEqual(number, 999)
            self.assertEqual(capture.counters["delivered"], 1000)
            self.assertIn("balanced", capture.explain())

    def test_a_path_and_a_name_of_a_compressed_file_are_files(self) -> None:
        packed = pathlib.Path(self.folder.name, "made.pcap.gz")
        packed.write_bytes(gzip.compress(pathlib.Path(self.file).read_bytes()))
        nameless = pathlib.Path(self.folder.name, "made")
        os.rename(self.file, nameless)
        for file in (str(packed), packed, nameless, f"pcap:{nameless}"):
            with self.subTest(file=file), ringtap.open(file) as capture:
                self.assertEqual(sum(1 for _ in capture), 1000)
        for wrong in (7, None, b"eth0"):
            with self.subTest(wrong=wrong), self.assertRaises(TypeError):
                ringtap.open(wrong)  # type: ignore[arg-type]

    def test_a_filter_and_a_change_of_it_hold_for_the_packets_that_follow(self) -> None:
        with ringtap.open(self.file, filter="udp src port 1007") as capture:
            self.assertEqual([bytes(packet) for packet in capture], [self.frames[7]])
            counters = capture.counters
            self.assertEqual((counters["delivered"], counters["filtered"]), (1, 999))
        with ringtap.open("sim:max?burst=100") as capture:
            capture.set_filter("ip6")
            self.assertEqual(sum(1 for _ in capture), 0)

    def test_a_packet_and_its_view_outlive_the_capture(self) -> None:
        with ringtap.open(self.file) as capture:
            kept = [packet.data for packet in capture]
        self.assertEqual(kept[999], self.frames[999])
        self.assertTrue(kept[0].readonly)

    def test_a_batch_has_length_items_and_a_copy(self) -> None:
        with ringtap.open(self.file) as capture:
            batch = next(capture.batches(packets=1000, timeout=10))
            self.assertEqual((len(batch), batch[-1].data), (1000, self.frames[-1]))
            with self.assertRaises(IndexError):
                batch[1000]
            with self.assertRaises(IndexError):
                batch[-1001]
            copy = batch.copy()
        del batch
        self.assertEqual([bytes(packet) for packet in copy], self.frames)

    def test_a_batch_is_empty_after_its_time_and_none_follows_the_end(self) -> None:
        with ringtap.open("sim:1kpps", filter="ip6") as capture:
            self.assertEqual([len(next(capture.batches(timeout=0.2))) for _ in range(2)], [0, 0])
        with ringtap.open("sim:1kpps") as capture:
            lengths = []
            for batch in capture.batches(packets=50, timeout=5):
                lengths.append(len(batch))
                capture.stop()
            self.assertGreaterEqual(lengths[0], 50)

    def test_recorded_packets_are_read_back(self) -> None:
        file = os.path.join(self.folder.name, "copy.pcapng")
        with ringtap.open(self.file) as capture:
            recorded = capture.record(file)
        self.assertEqual(recorded["packets"], 1000)
        with ringtap.open(recorded["file"]) as capture:
            self.assertEqual([bytes(packet) for packet in capture], self.frames)

    def test_pairs_are_those_of_dpkt(self) -> None:
        import dpkt

        with open(self.file, "rb") as file:
            expected = list(dpkt.pcap.Reader(file))
        with ringtap.open(self.file) as capture:
            pairs = list(capture.pairs())
        self.assertEqual([data for _, data in pairs], [data for _, data in expected])
        for (own, _), (other, _) in zip(pairs, expected):
            self.assertAlmostEqual(own, float(other), places=5)

    def test_scapy_has_the_packets_with_their_times(self) -> None:
        with ringtap.open(self.file) as capture:
            packets = next(capture.batches(packets=1000, timeout=10)).to_scapy()
        self.assertEqual(packets[5]["UDP"].sport, 1005)
        self.assertAlmostEqual(float(packets[5].time), captures.FIRST_NS / 1e9, places=4)


class Errors(unittest.TestCase):
    def test_each_kind_has_a_class_and_says_what_to_do(self) -> None:
        for device, options, kind, text in [
            ("nosuch:thing?", {}, ringtap.Error, "nosuch"),
            ("sim:1kpps?unknown=1", {}, ringtap.DeviceError, "unknown"),
            ("sim:1kpps", {"filter": "tcp porto 5"}, ringtap.FilterError, "porto"),
            ("pcap:/no/such.pcap", {}, ringtap.OpenError, "/no/such.pcap"),
            ("hub:ids", {"socket": "/no/such.sock"}, ringtap.HubError, "/no/such.sock"),
        ]:
            with self.subTest(device=device), self.assertRaises(kind) as raised:
                ringtap.open(device, **options)
            self.assertIn(text, str(raised.exception))
            self.assertIsInstance(raised.exception, ringtap.Error)

    def test_a_closed_capture_says_so(self) -> None:
        capture = ringtap.open("sim:1kpps")
        capture.close()
        capture.close()
        for use in [lambda: next(iter(capture)), lambda: capture.counters, lambda: capture.set_filter("ip")]:
            with self.assertRaises(ringtap.ClosedError):
                use()

    def test_an_exception_in_a_loop_closes_the_capture_and_comes_through(self) -> None:
        with self.assertRaises(ZeroDivisionError), ringtap.open("sim:1kpps") as capture:
            for _packet in capture:
                1 / 0
        with self.assertRaises(ringtap.ClosedError):
            capture.counters


class Waiting(unittest.TestCase):
    def test_other_threads_run_and_may_close_while_one_waits(self) -> None:
        capture = ringtap.open("sim:max?burst=10")
        self.assertEqual(sum(1 for _ in capture), 10)
        capture = ringtap.open("sim:1kpps", filter="ip6")
        ended: list[int | ringtap.ClosedError] = []

        def wait() -> None:
            try:
                ended.append(sum(1 for _ in capture))
            except ringtap.ClosedError as error:
                ended.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.3)
        self.assertTrue(thread.is_alive())
        self.assertGreater(capture.counters["filtered"], 0)
        capture.close()
        thread.join(10)
        self.assertEqual(len(ended), 1)

    def test_control_c_ends_a_wait(self) -> None:
        with ringtap.open("sim:1kpps", filter="ip6") as capture:
            threading.Timer(0.3, _thread.interrupt_main).start()
            with self.assertRaises(KeyboardInterrupt):
                for _packet in capture:
                    pass

    def test_control_c_ends_a_recording_and_leaves_a_whole_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "cut.pcapng")
            with ringtap.open("sim:1kpps") as capture:
                threading.Timer(0.5, _thread.interrupt_main).start()
                with self.assertRaises(KeyboardInterrupt):
                    capture.record(file)
            with ringtap.open(file) as capture:
                self.assertGreater(sum(1 for _ in capture), 10)

    def test_a_cancelled_task_loses_no_batch(self) -> None:
        async def read() -> int:
            count = 0
            with ringtap.open("sim:10kpps?burst=3000") as capture:

                async def wait() -> None:
                    nonlocal count
                    async for batch in capture:
                        count += len(batch)

                for _ in range(3):
                    task = asyncio.create_task(wait())
                    # It has begun to wait for a batch.
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                await wait()
            return count

        self.assertEqual(asyncio.run(read()), 3000)

    def test_async_for_gives_batches_while_other_tasks_run(self) -> None:
        ticks = []

        async def tick() -> None:
            while True:
                ticks.append(1)
                await asyncio.sleep(0.01)

        async def read() -> int:
            ticking = asyncio.create_task(tick())
            packets = 0
            with ringtap.open("sim:10kpps?burst=3000") as capture:
                async for batch in capture:
                    packets += len(batch)
            ticking.cancel()
            return packets

        self.assertEqual(asyncio.run(read()), 3000)
        self.assertGreater(len(ticks), 3)

    def test_a_child_of_fork_is_refused_and_ends(self) -> None:
        capture = ringtap.open("sim:1kpps")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                capture.counters
            except ringtap.ForkError:
                status = 0
            del capture
            os._exit(status)
        _, status = os.waitpid(child, 0)
        self.assertEqual(status, 0)
        self.assertGreaterEqual(capture.counters["offered"], 0)
        capture.close()

    def test_the_interpreter_ends_with_live_batches_and_captures(self) -> None:
        program = "import ringtap; c = ringtap.open('sim:max'); b = next(c.batches()); v = b[0].data"
        ended = subprocess.run([sys.executable, "-P", "-c", program], timeout=60, capture_output=True, text=True)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_a_sub_interpreter_is_refused_in_a_sentence(self) -> None:
        program = (
            "import _xxsubinterpreters as sub\n"
            "one = sub.create()\n"
            "try:\n    sub.run_string(one, 'import ringtap')\n"
            "except sub.RunFailedError as error:\n    print(error)\n"
        )
        ended = subprocess.run([sys.executable, "-P", "-c", program], timeout=60, capture_output=True, text=True)
        if "No module named '_xxsubinterpreters'" in ended.stderr:
            self.skipTest("this Python has no sub-interpreters by that name")
        self.assertIn("subinterpreters", ended.stdout)


class Documentation(unittest.TestCase):
    def test_the_examples_of_the_package_run(self) -> None:
        failed, run = doctest.testmod(ringtap)
        self.assertEqual((failed, run > 0), (0, True))


if __name__ == "__main__":
    unittest.main()
