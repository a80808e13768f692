# SPDX-License-Identifier: MIT OR Apache-2.0
"""A contender for tests: `read.py DEVICE [FAULT]` counts frames until Ctrl-C; FAULT is how it lies."""

import os
import signal
import socket
import struct
import sys
import time

SOL_PACKET, PACKET_STATISTICS, SO_RCVBUFFORCE = 263, 6, 33
device, fault = sys.argv[1], (sys.argv[2:] or ["honest"])[0]
source = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
source.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
source.bind((device, 0x88B5))
source.settimeout(0.05)
ended: list[int] = []
signal.signal(signal.SIGINT, lambda number, _: ended.append(number))
if fault == "never-ready":
    time.sleep(1000)
print("ready", flush=True)
delivered = 0
while not ended or fault == "never-ends":
    try:
        source.recv(2048)
        delivered += 1
    except OSError:
        pass  # no frame, or an outage
    if fault == "floods":
        print("x" * 100_000)
    if fault == "grows" and delivered == 700:
        grown = b"x" * (8 << 20)
    if fault == "dies" and delivered > 100:
        sys.exit(3)
seen, lost = struct.unpack("II", source.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
told = {"hides": delivered * 999 // 1000, "boasts": delivered * 1001 // 1000 + 1}.get(fault, delivered)
if fault != "silent":
    print(f"received {told} dropped {lost}\nheaders sum {delivered + (os.getpid() if fault == 'sums' else 0)}")
