# SPDX-License-Identifier: MIT OR Apache-2.0
"""A service for tests: `service.py` answers, `service.py ADDRESS DEVICE` asks; the fake contenders see its frames."""

import socket
import sys

PORT, FRAMES = 8080, 150
if len(sys.argv) == 1:
    server = socket.create_server(("", PORT))
    print("ready", flush=True)
    while True:
        server.accept()[0].sendall(b"yes")
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind((sys.argv[2], 0))
answers = 0
for _ in range(FRAMES):
    out.send(b"\xff" * 6 + b"\x02" * 6 + b"\x88\xb5" + bytes(46))
    answers += socket.create_connection((sys.argv[1], PORT)).recv(3) == b"yes"
print("answers", answers)
