# SPDX-License-Identifier: MIT OR Apache-2.0
"""Asks `guests/host.py`, whose socket is in this folder, for something, and prints what it answers.

usage: run.py COMMAND TEXT   run a program in a machine until SIGINT; it is ready once it has printed TEXT
       run.py plug           unplug the memory of a machine, and plug it again

Uses no processor time while the host waits. Exit status: 0 if the last line of the answer is `status 0`.
"""

from __future__ import annotations

import json
import signal
import socket
import sys

SOCKET = "guests.sock"


def main(words: list[str]) -> int:
    """Gives the exit status."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(SOCKET)
    signal.signal(signal.SIGINT, lambda *_: link.shutdown(socket.SHUT_WR))
    # The shell of a machine takes single lines.
    link.sendall(json.dumps([" ".join(one.split()) for one in words]).encode() + b"\n")
    line = ""
    for line in link.makefile(errors="replace"):
        print(line, end="", flush=True)
    return 0 if line == "status 0\n" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
