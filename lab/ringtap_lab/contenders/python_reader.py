#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads packets with a Python package, and tells how many and how fast: a program under measurement.

usage: python_reader.py numpy|arrow|packets|scapy|pyshark SOURCE [PACKETS]

SOURCE is a device of ringtap, or a capture file. Reads to the end, to the number of packets, or to Ctrl-C.
Every kind adds up the lengths of the packets, so that each packet is looked at. The last lines are JSON: the
counters of ringtap, and `read`, `bytes` and the seconds from opening to the end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from itertools import islice

#: Packets of a batch. More does not save time, less does not fit the processor's cache better.
BATCH = 65536


def numpy(capture, _limit: int) -> Iterator[tuple[int, int]]:
    for batch in capture.batches():
        slots = batch.numpy()
        yield len(slots), int(slots["wire_length"].sum())


def arrow(capture, _limit: int) -> Iterator[tuple[int, int]]:
    import pyarrow.compute

    for batch in capture.batches(packets=BATCH):
        table = batch.arrow(headers=True)
        if table.num_rows:
            # A column that is computed of the headers must be there.
            assert table["src_port"].null_count == 0
            yield table.num_rows, pyarrow.compute.sum(table["wire_length"]).as_py()


def packets(capture, limit: int) -> Iterator[tuple[int, int]]:
    # The loop of a user, without a generator of ours around each packet.
    read = size = 0
    try:
        for packet in islice(capture, limit):
            read += 1
            size += packet.wire_length
    except KeyboardInterrupt:
        pass
    yield read, size


def scapy(file: str, _limit: int) -> Iterator[tuple[int, int]]:
    from scapy.utils import PcapReader

    with PcapReader(file) as reader:
        for packet in reader:
            yield 1, packet.wirelen


def pyshark(file: str, _limit: int) -> Iterator[tuple[int, int]]:
    from pyshark import FileCapture

    with FileCapture(file, keep_packets=False) as capture:
        for packet in capture:
            yield 1, int(packet.length)


def main(kind: str, source: str, limit: int) -> None:
    """Reads, and prints."""
    read = size = 0
    capture = None
    if kind not in ("scapy", "pyshark"):
        # Loaded before the clock runs, as the others are.
        import numpy as _numpy  # noqa: F401
        import ringtap

    else:
        __import__("scapy.layers.all" if kind == "scapy" else "pyshark")
    begun = time.monotonic()
    try:
        if kind not in ("scapy", "pyshark"):
            capture = ringtap.open(source)
        for count, length in globals()[kind](capture or source, limit):
            read += count
            size += length
            if read >= limit:
                break
    except KeyboardInterrupt:
        pass
    seconds = time.monotonic() - begun
    if capture is not None:
        print(json.dumps(capture.counters))
        capture.close()
    print(json.dumps({"read": read, "bytes": size, "seconds": seconds, "read_pps": read / seconds}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else sys.maxsize)
