# SPDX-License-Identifier: MIT OR Apache-2.0
"""A collector of NetFlow v9 and IPFIX over UDP: `collector.py PORT` tells number of records, packets and bytes.

Invariants
- The socket's buffer holds the messages of a whole trial; they are read when the exporter has ended.
- A record of an unknown template is an error, never nothing.
"""

from __future__ import annotations

import json
import signal
import socket
import struct
import sys
from dataclasses import dataclass

#: Above the limit of ordinary users, which holds some hundred messages.
SO_RCVBUFFORCE, BUFFER_BYTES = 33, 1 << 29
BYTES, PACKETS = 1, 2
VARIABLE = 0xFFFF
#: Headers by version, and where the number of the observation domain is.
HEADERS = {9: (20, 16), 10: (16, 12)}
TEMPLATES, OPTIONS = {9: 0, 10: 2}, {9: 1, 10: 3}


class MessageError(Exception):
    """A message that is no NetFlow v9 or IPFIX."""


@dataclass
class Totals:
    """Sums over flow records."""

    records: int = 0
    packets: int = 0
    bytes: int = 0
    #: Sets of records that are no plain flows.
    others: int = 0


def _layout(fields: list[tuple[int, int]]) -> tuple[struct.Struct, int] | None:
    """Both counters of a record, and which of them is that of packets; None if it has none."""
    order = [field for field, _ in fields if field in (BYTES, PACKETS)]
    if len(order) != 2 or any(length == VARIABLE for _, length in fields):
        return None
    words = ({4: "I", 8: "Q"}[length] if field in order else f"{length}x" for field, length in fields)
    return struct.Struct(">" + "".join(words)), order.index(PACKETS)


class Templates:
    """Templates of all observation domains."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[struct.Struct, int] | None] = {}

    def add(self, message: bytes, totals: Totals) -> None:
        """Adds the records of a message to the sums."""
        (version,) = struct.unpack_from(">H", message)
        if version not in HEADERS:
            raise MessageError(f"version {version} is neither 9 nor 10")
        at, domain_at = HEADERS[version]
        (domain,) = struct.unpack_from(">I", message, domain_at)
        while at + 4 <= len(message):
            kind, length = struct.unpack_from(">HH", message, at)
            body = message[at + 4 : at + length]
            if length < 4 or at + length > len(message):
                raise MessageError(f"a set of {length} bytes in a message of {len(message)}")
            if kind == TEMPLATES[version]:
                self._learn(version, domain, body)
            elif kind == OPTIONS[version]:
                (number,) = struct.unpack_from(">H", body)
                self._known[domain, number] = None
            elif kind >= 256:
                self._count(domain, kind, body, totals)
            at += length

    def _learn(self, version: int, domain: int, body: bytes) -> None:
        at = 0
        while at + 4 <= len(body):
            number, count = struct.unpack_from(">HH", body, at)
            at += 4
            if number < 256:
                return  # padding
            fields = []
            for _ in range(count):
                field, length = struct.unpack_from(">HH", body, at)
                at += 8 if version == 10 and field & 0x8000 else 4
                fields.append((field, length))
            self._known[domain, number] = _layout(fields)

    def _count(self, domain: int, number: int, body: bytes, totals: Totals) -> None:
        if (domain, number) not in self._known:
            raise MessageError(f"records of template {number} before it")
        known = self._known[domain, number]
        if known is None:
            totals.others += 1
            return
        layout, packets_at = known
        whole = len(body) - len(body) % layout.size
        for counts in layout.iter_unpack(body[:whole]):
            totals.records += 1
            totals.packets += counts[packets_at]
            totals.bytes += counts[1 - packets_at]


def main(port: int) -> None:
    """Collects until Ctrl-C, then tells the sums of all messages that have arrived."""
    source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    source.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    source.bind(("127.0.0.1", port))
    signal.signal(signal.SIGINT, lambda *_: None)
    print("ready", flush=True)
    signal.pause()
    templates, totals = Templates(), Totals()
    try:
        while True:
            templates.add(source.recv(65536, socket.MSG_DONTWAIT), totals)
    except BlockingIOError:
        print(json.dumps(vars(totals)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
