# SPDX-License-Identifier: MIT OR Apache-2.0
"""A reader of a hub, written from docs/internals/protocol.md and docs/internals/format.md alone.

Invariants
- Nothing here is shared with the hub's own code: a mistake in the documents shows here.
- An attacker may use any part of it: no method hides a descriptor, a mapping or an index.
"""

from __future__ import annotations

import array
import json
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

PROTOCOL = 1
MAX_MESSAGE_BYTES = 131_072
MAX_DESCRIPTORS = 64
#: Longest wait for an answer. A hub that needs longer is an error.
ANSWER_SECONDS = 60.0

REGION_MAGIC, CONTROL_MAGIC = b"RINGTAP1", b"RINGCTL1"
SEALED = 1 << 31
SLOT_BYTES, CHUNK_HEADER_BYTES = 32, 64

#: Offsets in a control region.
DELIVERIES_TAIL, RETURNS_HEAD, ENDED, WATCHING, WANTS_RETURNS = 64, 68, 72, 76, 80
DELIVERIES_HEAD, RETURNS_TAIL, ASLEEP, SLEEPS = 128, 132, 136, 140
DELIVERED, FILTERED, OTHER_MEMBERS, BYTES, READ_TO, STARTS = 144, 152, 160, 168, 176, 192


class Refused(Exception):
    """The hub answered `refused`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Gone(Exception):
    """The hub closed the connection, or cannot be reached."""


class Hub:
    """One connection to a hub."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(ANSWER_SECONDS)
        try:
            self.socket.connect(path)
        except OSError as error:
            self.socket.close()
            raise Gone(f"connect: {error}") from error

    def close(self) -> None:
        """Ends the connection, and with it the subscription."""
        self.socket.close()

    def send(self, request: dict | bytes, descriptors: list[int] | None = None) -> None:
        """Sends one message."""
        data = request if isinstance(request, bytes) else json.dumps(request).encode()
        control = []
        if descriptors:
            control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        try:
            self.socket.sendmsg([data], control)
        except OSError as error:
            raise Gone(f"send: {error}") from error

    def receive(self) -> tuple[dict, list[int]]:
        """Receives one answer and its descriptors."""
        try:
            data, descriptors, _flags, _from = socket.recv_fds(
                self.socket, MAX_MESSAGE_BYTES, MAX_DESCRIPTORS * 2
            )
        except OSError as error:
            raise Gone(f"receive: {error!r}") from error
        if not data:
            raise Gone("the hub closed the connection")
        return json.loads(data), list(descriptors)

    def ask(self, request: dict) -> tuple[dict, list[int]]:
        """Sends a request and receives its answer."""
        self.send(request)
        answer, descriptors = self.receive()
        if answer["answer"] == "refused":
            raise Refused(answer["code"], answer["message"])
        return answer, descriptors

    def hello(self, name: str) -> dict:
        """The first request."""
        return self.ask({"ask": "hello", "protocol": PROTOCOL, "features": [], "name": name})[0]

    def attach(self, group: str, **more: object) -> Subscription:
        """Subscribes to a group."""
        answer, descriptors = self.ask({"ask": "attach", "group": group, **more})
        return Subscription(answer, descriptors)

    def filter(self, program: list[int]) -> list[dict]:
        """Changes the subscription's filter."""
        return self.ask({"ask": "filter", "program": program})[0]["wanted"]

    def status(self) -> dict:
        """All counters of the hub."""
        return self.ask({"ask": "status"})[0]


@dataclass
class Lane:
    """What a reader knows of one lane."""

    expected: int
    #: Chunks accepted and not returned, in order: number and next slot.
    chunks: list[list[int]] = field(default_factory=list)


class Endpoint:
    """A reader's access to one source: the pool, mapped read-only, and the control region."""

    def __init__(self, facts: dict, pool: int, control: int) -> None:
        self.facts, self.pool_fd, self.control_fd = facts, pool, control
        self.pool = mmap.mmap(pool, facts["pool_bytes"], mmap.MAP_SHARED, mmap.PROT_READ)
        write = mmap.PROT_READ | mmap.PROT_WRITE
        self.control = mmap.mmap(control, facts["control_bytes"], mmap.MAP_SHARED, write)
        (magic, _version, _header, features, self.chunk_size, self.chunk_count, self.lane_count,
         _snap, self.segment_size, self.stride, epoch) = struct.unpack_from("<8sIIQIIIIQQQ", self.pool)  # fmt: skip
        assert magic == REGION_MAGIC and features == 0 and epoch == facts["epoch"], "header of the pool"
        magic, _version, lanes, self.deliveries, self.returns = struct.unpack_from("<8sIIII", self.control)
        assert magic == CONTROL_MAGIC and lanes == self.lane_count, "header of the control region"
        self.delivery_queue = _up_to_64(STARTS + 8 * lanes)
        self.return_queue = _up_to_64(self.delivery_queue + 8 * self.deliveries)
        self.lanes = [Lane(self.load64(STARTS + 8 * lane)) for lane in range(lanes)]
        #: Packets that the reader read, and packets that it missed.
        self.read, self.missed = 0, 0
        self.head, self.tail = self.load32(DELIVERIES_HEAD), self.load32(RETURNS_TAIL)

    def load32(self, at: int) -> int:
        """A word of the control region."""
        return struct.unpack_from("<I", self.control, at)[0]

    def load64(self, at: int) -> int:
        """A double word of the control region."""
        return struct.unpack_from("<Q", self.control, at)[0]

    def store32(self, at: int, value: int) -> None:
        """Writes a word of the control region."""
        struct.pack_into("<I", self.control, at, value & 0xFFFF_FFFF)

    def store64(self, at: int, value: int) -> None:
        """Writes a double word of the control region."""
        struct.pack_into("<Q", self.control, at, value & (2**64 - 1))

    def chunk_offset(self, chunk: int) -> int:
        """Place of a chunk in the pool."""
        linear = chunk * self.chunk_size
        return linear // self.segment_size * self.stride + linear % self.segment_size

    def accept(self) -> int:
        """Takes all entries of the delivery queue; returns how many chunks are held."""
        tail = self.load32(DELIVERIES_TAIL)
        while self.head != tail:
            at = self.delivery_queue + 8 * (self.head % self.deliveries)
            self._accept(self.load64(at))
            self.head = (self.head + 1) & 0xFFFF_FFFF
        self.store32(DELIVERIES_HEAD, self.head)
        return sum(len(lane.chunks) for lane in self.lanes)

    def _accept(self, entry: int) -> None:
        if entry >> 63:
            if not entry >> 62 & 1:
                self.missed += entry & (1 << 48) - 1
            return
        chunk, first = entry & 0xFFFF_FFFF, entry >> 32 & (1 << 30) - 1
        assert 0 < chunk < self.chunk_count, "number of a chunk"
        lane = struct.unpack_from("<I", self.pool, self.chunk_offset(chunk) + 4)[0]
        self.lanes[lane].chunks.append([chunk, first])

    def packets(self) -> Iterator[tuple[int, int, memoryview]]:
        """Reads what is published, returns chunks that are read; yields lane, sequence, bytes."""
        view = memoryview(self.pool)
        for number, lane in enumerate(self.lanes):
            while lane.chunks:
                chunk, slot = lane.chunks[0]
                base = self.chunk_offset(chunk)
                state, _lane, first = struct.unpack_from("<IIQ", self.pool, base)
                count = min(state & ~SEALED, (self.chunk_size - CHUNK_HEADER_BYTES) // SLOT_BYTES)
                for index in range(slot, count):
                    place = base + CHUNK_HEADER_BYTES + SLOT_BYTES * index
                    captured, payload = struct.unpack_from("<IH", self.pool, place + 24)
                    begin, length = base + payload * 8, captured & 0xFF_FFFF
                    assert 64 <= payload * 8 and payload * 8 + length <= self.chunk_size, "slot"
                    self.read += 1
                    yield number, first + index, view[begin : begin + length]
                lane.expected = max(lane.expected, first + count)
                lane.chunks[0][1] = max(slot, count)
                if not state & SEALED:
                    break
                lane.chunks.pop(0)
                self.give_back(chunk)

    def give_back(self, chunk: int) -> None:
        """Returns a chunk."""
        self.store64(self.return_queue + 8 * (self.tail % self.returns), chunk)
        self.tail = (self.tail + 1) & 0xFFFF_FFFF
        self.store32(RETURNS_TAIL, self.tail)

    def account(self) -> None:
        """Stores what `status` shows, and how far the reader has read."""
        self.store64(DELIVERED, self.read)
        self.store64(READ_TO, sum(lane.expected for lane in self.lanes))

    def close(self) -> None:
        """Removes both mappings; a view of the pool may still hold one."""
        for one in (self.pool, self.control):
            try:
                one.close()
            except BufferError:
                pass


class Subscription:
    """A subscription: its doorbell and its endpoints."""

    def __init__(self, answer: dict, descriptors: list[int]) -> None:
        self.answer, self.descriptors = answer, descriptors
        #: Readable when there is news; written to wake the hub.
        self.doorbell, self.hubs_doorbell = descriptors[:2]
        os.set_blocking(self.doorbell, False)
        self.endpoints = [
            Endpoint(facts, descriptors[2 + 2 * at], descriptors[3 + 2 * at])
            for at, facts in enumerate(answer["endpoints"])
        ]

    def ring(self) -> None:
        """Wakes the hub."""
        try:
            os.write(self.hubs_doorbell, (1).to_bytes(8, "little"))
        except BlockingIOError:
            pass
        except OSError as error:
            raise Gone(f"doorbell: {error}") from error

    def silence(self) -> None:
        """Reads the doorbell until it is empty."""
        try:
            while os.read(self.doorbell, 4096):
                pass
        except OSError:
            pass

    def read(self) -> int:
        """Accepts and reads everything that waits; returns the number of packets."""
        count = 0
        for endpoint in self.endpoints:
            endpoint.accept()
            count += sum(1 for _ in endpoint.packets())
            endpoint.account()
            if endpoint.load32(WANTS_RETURNS):
                endpoint.store32(WANTS_RETURNS, 0)
                self.ring()
        return count

    def sleep(self, seconds: float) -> None:
        """Sleeps as the protocol describes, at most so long."""
        self.silence()
        for endpoint in self.endpoints:
            endpoint.account()
            endpoint.store32(SLEEPS, endpoint.load32(SLEEPS) + 1)
            endpoint.store32(ASLEEP, 1)
        if any(endpoint.load32(WATCHING) < 2 for endpoint in self.endpoints):
            self.ring()
        if not self.read():
            select.select([self.doorbell], [], [], seconds)
        for endpoint in self.endpoints:
            endpoint.store32(ASLEEP, 0)

    def read_for(self, seconds: float) -> int:
        """Reads for so long as an honest reader does; returns the number of packets."""
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            found = self.read()
            count += found
            if not found:
                self.sleep(0.05)
        return count

    def close(self) -> None:
        """Closes every descriptor and mapping."""
        for endpoint in self.endpoints:
            endpoint.close()
        for descriptor in self.descriptors:
            os.close(descriptor)


def _up_to_64(size: int) -> int:
    return (size + 63) // 64 * 64


def subscribe(path: str, group: str, name: str = "outsider", **more: object) -> tuple[Hub, Subscription]:
    """Connects and subscribes."""
    hub = Hub(path)
    try:
        hub.hello(name)
        return hub, hub.attach(group, **more)
    except BaseException:
        hub.close()
        raise
