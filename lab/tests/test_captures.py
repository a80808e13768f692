# SPDX-License-Identifier: MIT OR Apache-2.0
"""Capture files of batteries hold what is said of them."""

from __future__ import annotations

import re
import struct
import tempfile
import unittest
from pathlib import Path

from ringtap_lab.agent import captures
from ringtap_lab.manager import battery, contender

KNOWN = contender.load_all([contender.FOLDER])


def frames(file: Path) -> list[bytes]:
    """All frames of a capture file."""
    data, at, found = file.read_bytes(), 24, []
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        found.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return found


class Captures(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "made"

    def test_a_mix_holds_what_is_said_of_it(self) -> None:
        made = captures.mix(self.file, 50)
        ends, size, whole = set(), 0, frames(self.file)
        for ip in (frame[14:] for frame in whole):
            self.assertEqual(len(ip), int.from_bytes(ip[2:4], "big"))
            ends.add((ip[12:16] + ip[20:22], ip[16:20] + ip[22:24]))
            size += len(ip)
        self.assertEqual((made.packets, made.bytes, made.records), (len(whole), size, len(ends)))
        self.assertEqual((made.frame_bytes, made.file_bytes), (size + 14 * len(whole), self.file.stat().st_size))

    def test_a_later_file_has_other_flows_and_later_times(self) -> None:
        captures.mix(self.file, 20, 3, first=400, start=1000.0)
        first = self.file.read_bytes()[24:28]
        self.assertGreaterEqual(int.from_bytes(first, "little"), captures.START + 1000)

    def test_a_folder_is_one_mix_after_the_other(self) -> None:
        made = captures.mixes(self.file, 20, 3)
        each = [frames(file) for file in sorted(self.file.iterdir())]
        self.assertEqual((len(each), made.records), (3, 120))
        self.assertEqual(made.packets, sum(map(len, each)))

    def test_small_packets_are_those_that_are_sent_live(self) -> None:
        made = captures.small(self.file, 7, 20)
        whole = frames(self.file)
        self.assertEqual({len(one) for one in whole}, {60})
        self.assertEqual((made.packets, made.records, len(set(whole))), (20, 7, 7))

    def test_few_elephants_have_most_bytes_and_a_cut_off_leaves_what_the_battery_says(self) -> None:
        one = battery.load(battery.FOLDER / "cutoff.toml", KNOWN)
        words = one.files[0].parameters
        made = captures.elephants(self.file, **words)
        length = made.frame_bytes // made.packets
        self.assertEqual(words["large"] * words["large_packets"] / made.packets, 0.8)
        # Packets that begin within 16 KiB of their flow are kept.
        kept = words["large"] * -(-16384 // length) + (words["flows"] - words["large"]) * words["small_packets"]
        self.assertEqual(one.aims[-1].least, 24 + kept * (16 + length))
        self.assertEqual(made.packets, len(frames(self.file)))

    def test_the_flow_that_is_sought_is_in_one_file(self) -> None:
        one = battery.load(battery.FOLDER / "find.toml", KNOWN)
        words = one.files[1].parameters
        host, port = re.search(r"host (\S+) and port (\d+)", KNOWN["ringtap find"].command).groups()
        flow = (int.from_bytes(bytes(map(int, host.split("."))), "big") - 0x0A000000) * 4
        found = [number for number in range(flow, flow + 4) if str(1024 + number % 60_000) == port]
        self.assertEqual(len(found), 1)
        # In the middle of the fifth file, which a quick run has, too.
        self.assertEqual(divmod(found[0], words["flows"]), (4, words["flows"] // 2))
        self.assertIn(f"host {host} and port {port}", KNOWN["tcpdump -r"].command)


if __name__ == "__main__":
    unittest.main()
