# SPDX-License-Identifier: MIT OR Apache-2.0
"""Searches of recordings."""

import contextlib
import datetime
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import warnings

import captures

import ringtap


def _searching() -> bool:
    """Whether a thread searches, also after a time in which it can end."""
    end = time.monotonic() + 30
    while "find\n" in _thread_names():
        if time.monotonic() > end:
            return True
        time.sleep(0.01)
    return False


def _thread_names() -> list[str]:
    names = []
    for file in pathlib.Path("/proc/self/task").glob("*/comm"):
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            names.append(file.read_text())
    return names


class Find(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # Packets of two files lie between each other: one each microsecond, the second file half of it later.
        self.frames = [captures.udp(number % 50, payload=18 + number % 7) for number in range(3000)]
        captures.write(str(self.folder / "one.pcap"), self.frames)
        captures.write(str(self.folder / "two.pcap"), self.frames, captures.FIRST_NS + 500)

    def test_packets_are_those_that_pass_in_the_order_of_their_times(self) -> None:
        search = ringtap.find(self.folder, "udp src port 1003")
        found = [(packet.time_ns, bytes(packet), search.origins[packet.lane].file.name) for packet in search]
        expected = []
        for number in range(3, 3000, 50):
            time_ns = captures.FIRST_NS + number * 1000
            expected.append((time_ns, self.frames[number], "one.pcap"))
            expected.append((time_ns + 500, self.frames[number], "two.pcap"))
        self.assertEqual(found, expected)
        self.assertEqual((search.totals["packets"], search.totals["scanned_files"], search.notes), (120, 2, []))

    def test_times_are_datetimes_or_seconds_and_the_end_is_not_included(self) -> None:
        first_s = captures.FIRST_NS // 10**9
        for start, end, packets in [
            (first_s, first_s + 1, 6000),
            (first_s + 1, None, 0),
            (None, first_s, 0),
            (datetime.datetime.fromtimestamp(first_s, datetime.timezone.utc), None, 6000),
            (datetime.datetime.fromtimestamp(first_s + 1), None, 0),
            # The packets of 123,457 µs to 124,457 µs: 1,000 of each file.
            (first_s + 0.12345748, first_s + 0.12445748, None),
        ]:
            found = sum(1 for _ in ringtap.find([self.folder], start=start, end=end))
            if packets is None:
                self.assertAlmostEqual(found, 2000, delta=4)
            else:
                self.assertEqual(found, packets, (start, end))

    def test_batches_are_tables_arrays_and_copies(self) -> None:
        batches = list(ringtap.find(self.folder).batches(packets=1 << 30))
        self.assertEqual([len(batch) for batch in batches], [6000])
        table, slots = batches[0].arrow(text=True), batches[0].numpy()
        self.assertEqual(table["src"][0].as_py(), "10.0.0.1")
        self.assertEqual(table["lane"].to_pylist()[:4], [0, 1, 0, 1])
        self.assertEqual(table["data"][5999].as_py(), self.frames[2999])
        self.assertEqual(list(slots["time_ns"]), sorted(slots["time_ns"]))
        self.assertEqual(bytes(batches[0].copy()[4000]), self.frames[2000])

    def test_with_an_index_nothing_is_scanned_and_the_packets_are_the_same(self) -> None:
        by_scan = [packet.time_ns for packet in ringtap.find(self.folder, "udp src port 1049")]
        subprocess.run([captures.ringtap_program(), "index", "-q", self.folder], check=True, capture_output=True)
        search = ringtap.find(self.folder, "udp src port 1049")
        self.assertEqual([packet.time_ns for packet in search], by_scan)
        self.assertEqual((len(by_scan), search.totals["scanned_files"]), (120, 0))

    def test_a_community_id_finds_one_flow(self) -> None:
        first = next(ringtap.find(self.folder, "udp src port 1007").batches())
        flow = first.arrow(community_id=True)["community_id"][0].as_py()
        found = [bytes(packet)[34:36] for packet in ringtap.find(self.folder, community_id=flow)]
        self.assertEqual(found, [(1007).to_bytes(2)] * 120)
        with self.assertRaises(ValueError):
            ringtap.find(self.folder, community_id="1:abc")

    def test_inner_decides_on_the_packet_in_a_tunnel(self) -> None:
        inner = captures.udp(7)
        vxlan = bytes([8, 0, 0, 0, 0, 0, 42, 0])
        outer = captures.udp(1, payload=len(vxlan + inner))
        outer = outer[:36] + (4789).to_bytes(2) + outer[38:42] + vxlan + inner
        file = self.folder / "tunnel.pcap"
        captures.write(str(file), [outer])
        counts = [
            sum(1 for _ in ringtap.find(str(file), "udp src port 1007", inner=inner)) for inner in (False, True)
        ]
        self.assertEqual(counts, [0, 1])

    def test_a_damaged_file_gives_what_is_before_the_damage_and_a_warning(self) -> None:
        file = self.folder / "one.pcap"
        os.truncate(file, file.stat().st_size // 2)
        # A file that changed a moment ago is still being written: its end may be missing.
        os.utime(file, (captures.FIRST_NS // 10**9,) * 2)
        for whole in [lambda search: sum(map(len, search.batches())), lambda search: sum(1 for _ in search)]:
            search = ringtap.find(self.folder)
            with self.assertWarnsRegex(ringtap.IncompleteWarning, "one.pcap"):
                packets = whole(search)
            self.assertTrue(4000 < packets < 5000, packets)
            self.assertEqual(len(search.notes), 1)

    def test_totals_count_the_files_that_could_not_be_read_to_their_end(self) -> None:
        search = ringtap.find([self.folder, "/no/such/file"], "udp src port 1003")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual(sum(1 for _ in search), 120)
        self.assertEqual((search.totals["failed_files"], search.totals["files"]), (1, 2))

    def test_a_search_that_finds_nothing_ends_when_it_is_closed_interrupted_or_forgotten(self) -> None:
        # Minutes of reading, without a packet that is found.
        large = self.folder / "large.pcap"
        captures.write(str(large), self.frames * 30)
        endless = [str(large)] * 200_000

        def closed() -> None:
            with ringtap.find(endless, "udp port 1") as search:
                with self.assertRaises(KeyError):
                    raise KeyError
            with self.assertRaisesRegex(ringtap.ClosedError, "closed"):
                next(search.batches())

        def interrupted() -> None:
            search = ringtap.find(endless, "udp port 1")
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            with self.assertRaises(KeyboardInterrupt):
                list(search)
            self.assertFalse(_searching(), "while it is still referred to")
            self.assertEqual(search.totals["packets"], 0)

        def forgotten() -> None:
            packets = ringtap.find(endless, "udp port 1").batches(timeout=0.1)
            self.assertEqual(len(next(packets)), 0)
            packets.close()

        for ending in (closed, interrupted, forgotten):
            with self.subTest(ending.__name__):
                ending()
                self.assertFalse(_searching())

    def test_what_is_not_there_or_no_capture_is_said(self) -> None:
        with self.assertRaisesRegex(ringtap.FilterError, "porto"):
            ringtap.find(self.folder, "tcp porto 5")
        for start, end in [(-1.0, None), (None, -1.0), (2.0, 1.0), (None, 1e11), (float("nan"), None)]:
            with self.subTest(start=start, end=end), self.assertRaises(ValueError):
                ringtap.find(self.folder, start=start, end=end)
        with self.assertRaises(TypeError):
            ringtap.find(7)  # type: ignore[arg-type]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertEqual(list(ringtap.find("/no/such/folder")), [])
        self.assertIn("/no/such/folder", str(caught[0].message))

    def test_a_name_that_is_not_utf8_is_a_path(self) -> None:
        folder = os.fsencode(self.folder / "further")
        os.mkdir(folder)
        file = os.path.join(folder, b"\xff.pcap")
        os.rename(self.folder / "one.pcap", file)
        search = ringtap.find(os.fsdecode(folder))
        self.assertEqual(sum(1 for _ in search), 3000)
        self.assertEqual(os.fsencode(search.origins[0].file), file)

    def test_a_search_that_nobody_reads_to_its_end_disturbs_nothing(self) -> None:
        captures.write(str(self.folder / "large.pcap"), self.frames * 30)
        packets = iter(ringtap.find(self.folder))
        self.assertEqual(next(packets).time_ns, captures.FIRST_NS)
        del packets
        program = f"import ringtap; p = next(iter(ringtap.find({str(self.folder)!r})))"
        ended = captures.in_another_python(program)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
