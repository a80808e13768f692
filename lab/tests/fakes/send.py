# SPDX-License-Identifier: MIT OR Apache-2.0
"""A sender for tests: `send.py DEVICE SIZE RATE SECONDS` sends frames through a packet socket."""

import json
import re
import socket
import sys
import time

device, size, rate, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind((device, 0))
factor = {"": 1, "k": 1000, "M": 1_000_000}
match = re.fullmatch(r"([\d.]+)([kM]?)pps", rate)
pps = float(match[1]) * factor[match[2]] if match else 20_000
frame = b"\xff" * 6 + b"\x02" * 6 + b"\x88\xb5"
frame += bytes(size - 4 - len(frame))
begin, sent = time.monotonic_ns(), 0
while sent < pps * seconds:
    while time.monotonic_ns() < begin + sent / pps * 1e9:
        time.sleep(0.001)
    try:
        out.send(frame)
    except OSError:
        time.sleep(0.001)  # an outage of the link
        continue
    sent += 1
print(json.dumps({"sent": sent, "elapsed_ns": time.monotonic_ns() - begin}))
