# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes the capture files of a battery: `KINDS`. The same arguments make the same file.

Lengths of the flows of a mix have a heavy tail: most have few packets, most packets are in few flows. No ends
are used twice, so that every meter must find the same flows.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

START, SECONDS = 1_700_000_000, 20.0
MAX_SEGMENTS, SEGMENT = 4000, 1448
FIN, SYN, PUSH, ACK = 1, 2, 8, 16
ETHERNET = bytes.fromhex("020000000001 020000000002 0800")
PAYLOAD = bytes(1500)
#: Shares of kinds of flows.
DNS, WEB = 0.5, 0.9


@dataclass(frozen=True)
class Account:
    """What is in a file: packets, their bytes from IP on, flows by direction, and all bytes of the frames."""

    packets: int
    bytes: int
    records: int
    frame_bytes: int
    file_bytes: int


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


def write(file: Path, timed: Iterable[tuple[float, bytes]], records: int) -> Account:
    """Writes a capture file of so many flows; times are seconds after its start."""
    packets = frame_bytes = 0
    with file.open("wb", 1 << 20) as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for time, packet in timed:
            seconds = int(time)
            micros, length = int((time - seconds) * 1e6), len(packet)
            out.write(struct.pack("<IIII", START + seconds, micros, length, length) + packet)
            packets, frame_bytes = packets + 1, frame_bytes + length
    return Account(packets, frame_bytes - len(ETHERNET) * packets, records, frame_bytes, file.stat().st_size)


def mix(file: Path, flows: int, seed: int = 1, first: int = 0, start: float = 0.0) -> Account:
    """DNS, web connections, and datagrams like QUIC's. Flows are numbered from `first` on, times begin at `start`."""
    choose = random.Random(seed)
    timed: list[tuple[float, bytes]] = []
    for number in range(first, first + flows):
        time, gap = start + choose.uniform(0, SECONDS), choose.uniform(0.000_05, 0.001)
        for packet in flow(number, choose):
            timed.append((time, packet))
            time += gap
    timed.sort(key=lambda one: one[0])
    return write(file, timed, 2 * flows)


def mixes(folder: Path, flows: int, files: int) -> Account:
    """A folder with one mix after the other."""
    folder.mkdir()
    each = [mix(folder / f"{number:04}.pcap", flows, number, number * flows, number * SECONDS)
            for number in range(files)]  # fmt: skip
    return Account(*(sum(one) for one in zip(*map(astuple, each), strict=True)))


def small(file: Path, flows: int, packets: int) -> Account:
    """Packets of 64 bytes of many flows in turn, as those that are sent live."""
    frames = [next(datagrams(number, 9, [(True, 18)])) for number in range(flows)]
    return write(file, ((number / 1e6, frames[number % flows]) for number in range(packets)), flows)


def elephants(file: Path, flows: int, large: int, large_packets: int, small_packets: int, payload: int) -> Account:
    """In random order, packets of one size of many flows, of which the first `large` have more than the others."""
    order = [number for number in range(flows) for _ in range(large_packets if number < large else small_packets)]
    random.Random(1).shuffle(order)
    header = struct.pack(">HH", 8 + payload, 0)
    packets = [frame(True, number, 17, 443, header, payload) for number in range(flows)]
    return write(file, ((0.0, packets[number]) for number in order), flows)


#: By the name in a battery.
KINDS: dict[str, Callable[..., Account]] = {"mix": mix, "mixes": mixes, "small": small, "elephants": elephants}
