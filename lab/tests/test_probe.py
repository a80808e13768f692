# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the probe's measurements are made of: the collector, and what of figures must hold."""

from __future__ import annotations

import struct
import sys
import unittest

from ringtap_lab.manager import contender

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


if __name__ == "__main__":
    unittest.main()
