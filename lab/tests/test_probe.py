# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the probe's measurements are made of: the collector, and what of figures must hold."""

from __future__ import annotations

import struct
import sys
import unittest

from ringtap_lab.manager import contender
from ringtap_lab.scenarios import ksensor_report

sys.path.insert(0, str(contender.FOLDER))
from collector import MessageError, Templates, Totals  # noqa: E402


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


class Figures(unittest.TestCase):
    def found(self, **lines: list[float]) -> dict:
        points = {"workers": [10, 20], "kernel": [10, 20], "libpcap": [10, 5]} | lines
        return {
            line: [
                {"rate": 50_000 * (at + 1), "analysed": analysed, "captured": analysed, "in_vain": 0}
                for at, analysed in enumerate(values)
            ]
            for line, values in points.items()
        }

    def test_a_fall_and_what_libpcap_does_better_is_told(self) -> None:
        self.assertEqual(ksensor_report.claims(self.found()), [])
        (fall,) = ksensor_report.claims(self.found(kernel=[20, 10]))
        self.assertIn("kernel: 0.50 of the most at 100,000/s", fall)
        (less,) = ksensor_report.claims(self.found(workers=[5, 10]))
        self.assertIn("workers: less than libpcap at 50,000/s", less)
        in_vain = self.found()
        in_vain["workers"][1]["in_vain"] = 3
        self.assertIn("3 packets captured and not", ksensor_report.claims(in_vain)[0])


if __name__ == "__main__":
    unittest.main()
