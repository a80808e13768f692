# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs beside others, for tests: `beside.py WHAT SOCKET`: a server, and what calls it, waits, or ends too early."""

import contextlib
import os
import signal
import socket
import sys
import time

what, path = sys.argv[1:]
if what in ("serves", "leaks"):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    kept = [os.open("/dev/null", os.O_RDONLY)]
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    print("ready", flush=True)
    while True:
        called, _ = server.accept()
        if what == "leaks":
            kept.append(called.detach())
        else:
            called.recv(1)
            called.close()
print("ready", flush=True)
calls = 0
with contextlib.suppress(KeyboardInterrupt):
    while what != "quits":
        if what == "calls":
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as out:
                out.connect(path)
                calls += 1
        time.sleep(0.01)
print("calls", calls)
