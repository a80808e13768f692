# SPDX-License-Identifier: MIT OR Apache-2.0
"""Round trips by one clock: sends frames of type 0x88b5, and times the answers of pcap_echo.c, of type 0x88b6.

usage: echo.py DEVICE SECONDS. Exit status: 1 if fewer than nine of ten frames were answered.
"""

from __future__ import annotations

import socket
import sys
import time

ASKED, ANSWER = 0x88B5, 0x88B6
HEAD = bytes.fromhex("020000000001020000000002") + ASKED.to_bytes(2)
PAUSE_S, LOST_S = 0.02, 1.0


def trip_ns(link: socket.socket, number: int) -> int | None:
    """Nanoseconds of a round trip; None if there was no answer."""
    asked = number.to_bytes(8) + bytes(38)
    begin = time.perf_counter_ns()
    link.send(HEAD + asked)
    try:
        while link.recv(2048)[14:60] != asked:
            pass
    except TimeoutError:
        return None
    return time.perf_counter_ns() - begin


def main(device: str, seconds: str) -> int:
    """Gives the exit status."""
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ANSWER))
    link.bind((device, ANSWER))
    link.settimeout(LOST_S)
    end, number, trips = time.monotonic() + float(seconds), 0, list[int]()
    while time.monotonic() < end:
        time.sleep(PAUSE_S)
        trip = trip_ns(link, number)
        number += 1
        trips += [trip] if trip is not None else []
    print(f"{len(trips)} of {number} answered")
    if len(trips) < 0.9 * number:
        return 1
    trips.sort()
    print(f"median {trips[len(trips) // 2]} p99 {trips[len(trips) * 99 // 100]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
