# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes a capture file with a realistic mix of flows: DNS, web connections, and datagrams like QUIC's.

Lengths of flows have a heavy tail: most have few packets, most packets are in few flows. No ends are
used twice, so that every meter must find the same flows. The same seed makes the same file.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

START, SECONDS = 1_700_000_000, 20.0
MAX_SEGMENTS, SEGMENT = 4000, 1448
FIN, SYN, PUSH, ACK = 1, 2, 8, 16
ETHERNET = bytes.fromhex("020000000001 020000000002 0800")
PAYLOAD = bytes(1500)
#: Shares of kinds of flows.
DNS, WEB = 0.5, 0.9


@dataclass(frozen=True)
class Mix:
    """What is in a file: IP packets, their bytes, and flows in both directions together."""

    packets: int
    bytes: int
    flows: int


def frame(forward: bool, number: int, protocol: int, port: int, header: bytes, size: int) -> bytes:
    """An Ethernet frame of flow `number`, whose client has an address and a port of its own."""
    client, server = 0x0A000000 + number // 4, 0xC6120000 + number % 997
    ends, ports = (client, server), (1024 + number % 60_000, port)
    if not forward:
        ends, ports = ends[::-1], ports[::-1]
    length = 24 + len(header) + size
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, length, 0, 0x4000, 64, protocol, 0, *ends)
    return ETHERNET + ip + struct.pack(">HH", *ports) + header + PAYLOAD[:size]


def tail(choose: random.Random) -> int:
    """A number of segments with a heavy tail."""
    return min(MAX_SEGMENTS, int(2 * choose.paretovariate(0.9)))


def datagrams(number: int, port: int, sizes: list[tuple[bool, int]]) -> Iterator[bytes]:
    for forward, size in sizes:
        yield frame(forward, number, 17, port, struct.pack(">HH", 8 + size, 0), size)


def web(number: int, segments: int) -> Iterator[bytes]:
    """A TCP connection: handshake, request, an answer of so many segments, and the end."""
    here, there = 1000, 5000

    def segment(forward: bool, flags: int, size: int = 0) -> bytes:
        nonlocal here, there
        numbers = (here, there) if forward else (there, here)
        offset = 0x50 << 8 | flags
        header = struct.pack(">IIHHHH", numbers[0], numbers[1] * bool(flags & ACK), offset, 512, 0, 0)
        taken = size + bool(flags & (SYN | FIN))
        here, there = here + taken * forward, there + taken * (not forward)
        return frame(forward, number, 6, 443, header, size)

    yield segment(True, SYN)
    yield segment(False, SYN | ACK)
    yield segment(True, ACK)
    yield segment(True, PUSH | ACK, 300 + number % 400)
    for at in range(segments):
        yield segment(False, ACK, SEGMENT)
        if at % 2:
            yield segment(True, ACK)
    yield segment(False, FIN | ACK)
    yield segment(True, FIN | ACK)
    yield segment(False, ACK)


def flow(number: int, choose: random.Random) -> Iterator[bytes]:
    kind = choose.random()
    if kind < DNS:
        return datagrams(number, 53, [(True, 40), (False, 60 + number % 200)])
    if kind < WEB:
        return web(number, tail(choose))
    return datagrams(number, 443, [(at % 3 == 0, 60 if at % 3 == 0 else 1200) for at in range(3 + tail(choose))])


def write(out: BinaryIO, timed: Iterable[tuple[float, bytes]]) -> None:
    """Writes a capture file; times are seconds after its start."""
    out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
    for time, packet in timed:
        seconds = int(time)
        micros, length = int((time - seconds) * 1e6), len(packet)
        out.write(struct.pack("<IIII", START + seconds, micros, length, length) + packet)


def make(file: Path, flows: int, seed: int = 1, first: int = 0, start: float = 0.0) -> Mix:
    """Writes the file; gives what is in it. Flows are numbered from `first` on, times count from `start` seconds."""
    choose = random.Random(seed)
    timed: list[tuple[float, bytes]] = []
    for number in range(first, first + flows):
        time, gap = start + choose.uniform(0, SECONDS), choose.uniform(0.000_05, 0.001)
        for packet in flow(number, choose):
            timed.append((time, packet))
            time += gap
    timed.sort(key=lambda one: one[0])
    with file.open("wb", 1 << 20) as out:
        write(out, timed)
    size = sum(len(packet) for _, packet in timed) - len(ETHERNET) * len(timed)
    return Mix(len(timed), size, flows)
