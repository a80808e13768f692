# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the probe's measurements are made of: the collector, the mix, and what of figures must hold."""

from __future__ import annotations

import struct
import tempfile
import unittest
from pathlib import Path

from ringtap_lab.scenarios import flows, mix
from ringtap_lab.scenarios.ipfix import MessageError, Templates, Totals


def set_of(kind: int, body: bytes) -> bytes:
    return struct.pack(">HH", kind, 4 + len(body)) + body


def message(version: int, *sets: bytes) -> bytes:
    body = b"".join(sets)
    if version == 10:
        return struct.pack(">HHIII", 10, 16 + len(body), 0, 0, 7) + body
    return struct.pack(">HHIIII", 9, 1, 0, 0, 0, 7) + body


class Collecting(unittest.TestCase):
    def test_records_of_both_versions_are_added_up(self) -> None:
        for version, template, private in ((9, 0, b""), (10, 2, struct.pack(">I", 29305))):
            more = struct.pack(">HH", 0x8001 if private else 4, 1) + private
            fields = struct.pack(">HHHHHH", 256, 3, 1, 8, 2, 4) + more
            records = struct.pack(">QIB", 100, 2, 9) + struct.pack(">QIB", 50, 1, 9)
            totals, templates = Totals(), Templates()
            templates.add(message(version, set_of(template, fields)), totals)
            templates.add(message(version, set_of(256, records + b"\0\0")), totals)
            self.assertEqual(totals, Totals(2, 3, 150))

    def test_records_without_a_template_and_broken_sets_are_errors(self) -> None:
        for wrong in (set_of(300, b"12345678"), struct.pack(">HH", 2, 2), struct.pack(">HH", 2, 99)):
            with self.assertRaises(MessageError):
                Templates().add(message(10, wrong), Totals())


class Mixing(unittest.TestCase):
    def test_a_file_holds_what_is_said_of_it(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "mix.pcap"
            made = mix.make(file, 50)
            data, at, packets, size, ends = file.read_bytes(), 24, 0, 0, set()
            while at < len(data):
                (length,) = struct.unpack_from("<I", data, at + 8)
                ip = data[at + 30 : at + 16 + length]
                self.assertEqual(len(ip), int.from_bytes(ip[2:4], "big"))
                one, other = (ip[12:16] + ip[20:22], ip[16:20] + ip[22:24])
                ends.add((min(one, other), max(one, other)))
                packets, size, at = packets + 1, size + len(ip), at + 16 + length
        self.assertEqual((made.packets, made.bytes, made.flows), (packets, size, len(ends)))


class Figures(unittest.TestCase):
    def test_the_best_other_program_counts(self) -> None:
        def entry(pps: float) -> dict:
            return {"rounds": [{"round": 0, "pps": pps}]}

        rates = {"ringtap probe": 60.0, "softflowd": 10.0, "nfstream": 2.0}
        found = {"probe-flows": {flows.MIX: {name: entry(pps) for name, pps in rates.items()}}}
        self.assertEqual(flows.least(flows.MIX, "pps")(found), 6.0)
        self.assertEqual(flows.each(flows.MIX, "pps")(found), "softflowd 6.0 x, nfstream 30.0 x")
        self.assertIsNone(flows.least("live", "lossless_pps")({}))


if __name__ == "__main__":
    unittest.main()
