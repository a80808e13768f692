# SPDX-License-Identifier: MIT OR Apache-2.0
"""Capture files for the tests, written byte by byte."""

import struct

FIRST_NS = 1_700_000_000_123_456_789
SIM = "sim:max?burst={}&flows=16"


def udp(number: int, payload: int = 18) -> bytes:
    """An Ethernet frame with UDP over IPv4 from port 1000 + number."""
    ethernet = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0])
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + payload, 0, 0, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    return ethernet + ip + struct.pack("!HHHH", 1000 + number, 53, 8 + payload, 0) + bytes(payload)


def write(path: str, frames: list[bytes]) -> None:
    """A pcap file with nanoseconds, a packet each microsecond."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for number, frame in enumerate(frames):
            time_ns = FIRST_NS + number * 1000
            file.write(struct.pack("<IIII", time_ns // 10**9, time_ns % 10**9, len(frame), len(frame)) + frame)
