# SPDX-License-Identifier: MIT OR Apache-2.0
"""Hosts virtual machines, in which clients (`guests/run.py`) run programs; works in the current folder.

With `--hub`, the hub's group `all` is plugged into each machine. Prints READY, and ends at SIGINT.

Invariants
- A program in a machine is ready, and asked to end, only when the machine's processors have nothing to do.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import socketserver
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from ringtap_lab.guests import run
from ringtap_lab.guests.machine import QEMU, Guest, GuestError, Program, acceleration, make_image, unable

READY = "machines are ready"
START_S = 60
#: After so many looks, one each 0.1 s, a program is asked to end: then it tells what it printed instead.
LOOKS = 200


class Host:
    """Running machines, and the hub with its processes for them."""

    def __init__(self, stack: ExitStack, asked: argparse.Namespace) -> None:
        self._stack, self._asked = stack, asked
        image = Path("image").resolve()
        make_image(image, [asked.ringtap, asked.ringtap.with_name("libringtap_pcap.so"), *asked.programs])
        # The hub ends after the machines.
        self.hub = self._start("hub", shlex.split(asked.hub), "ringtap: hub of") if asked.hub else None
        taps = [asked.tap, *[""] * (asked.machines - 1)]
        self.machines = [stack.enter_context(Guest(f"vm{number}", image, tap, not asked.no_iommu))
                         for number, tap in enumerate(taps, 1)]  # fmt: skip
        for one in self.machines:
            one.booted()
        if asked.tap:
            self.machines[0].run("ip link set eth0 up promisc on")
        self.attached = [self._attach(one) for one in self.machines if asked.hub]
        for one in self.machines[: len(self.attached)]:
            one.run("ringtap guest >/agent 2>&1 &")
            one.run("until [ -S /run/ringtap/host/all.sock ]; do sleep 0.1; done", START_S)
        self._turns = itertools.cycle([(one, threading.Lock()) for one in self.machines])
        self._numbers = itertools.count()

    def _start(self, name: str, command: list[str], line: str) -> Program:
        one = self._stack.enter_context(Program(name, command, Path.cwd()))
        one.wait_for(line)
        return one

    def _attach(self, one: Guest) -> Program:
        ours, memory = self._asked.ringtap, self._asked.memory
        command = f"{ours} vm --folder vm attach --qmp {one.qmp} --name {one.name} -g all --socket hub.sock"
        return self._start(f"attach-{one.name}", [*command.split(), "--memory", memory], "attached, for groups")

    def ringtap_ns(self) -> int:
        """Nanoseconds that the hub and its processes for machines ran."""
        return sum(one.ran_ns() for one in [self.hub, *self.attached] if one)

    def carry_out(self, client: socketserver.StreamRequestHandler, command: str, text: str) -> None:
        """Runs a program for a client, in the machines by turns."""
        (one, lock), number = next(self._turns), next(self._numbers)
        with lock:
            one.run(f"{command} >out{number} 2>&1 & pid{number}=$!; n=0")
            is_ready = f'case "$(cat out{number})" in *"{text}"*) true ;; *) [ $((n += 1)) -gt {LOOKS} ] ;; esac'
            one.run(f"until {is_ready}; do sleep 0.1; done")
        one.wait_quiet()
        worked, ran = one.guest_ns(), self.ringtap_ns()
        client.wfile.write(b"ready\n")
        client.rfile.read()
        one.wait_quiet()
        worked, ran = one.guest_ns() - worked, self.ringtap_ns() - ran
        with lock:
            said = one.run(f"kill -INT $pid{number}; wait $pid{number}; s=$?; cat out{number}; echo; echo status $s")
        client.wfile.write(f"guest_ns {worked}\nringtap_ns {ran}\n{said}".encode())

    def plug(self) -> str:
        """Times of an unplug, of a plug, and from its beginning to the first packet in the guest."""
        one, begin = self.machines[0], time.monotonic()
        self.attached.pop().end()
        unplugged, since = time.monotonic() - begin, len(one.output())
        one.tell("until ringtap count -q -c 1 -i host:all >/dev/null 2>&1; do :; done; echo GUEST first")
        time.sleep(1.0)
        begin = time.monotonic()
        self.attached.append(self._attach(one))
        plugged = time.monotonic() - begin
        one.wait_for("GUEST first\n", START_S, since)
        first = time.monotonic() - begin
        return f"unplugged_s {unplugged:.3f}\nplugged_s {plugged:.3f}\nfirst_packet_s {first:.3f}\nstatus 0\n"


class Server(socketserver.ThreadingUnixStreamServer):
    """The socket of a host."""

    daemon_threads = True

    def __init__(self, host: Host) -> None:
        super().__init__(run.SOCKET, Client)
        self.host = host


class Client(socketserver.StreamRequestHandler):
    """A connection of `guests/run.py`."""

    server: Server

    def handle(self) -> None:
        """Carries out one request."""
        words = json.loads(self.rfile.readline())
        try:
            if words == ["plug"]:
                self.wfile.write(self.server.host.plug().encode())
            else:
                self.server.host.carry_out(self, *words)
        except GuestError as error:
            self.wfile.write(f"{error}\nstatus 1\n".encode())


def main(words: list[str]) -> int:
    """Gives the exit status."""
    if words[:1] == ["--version"]:
        each = [subprocess.check_output([name, "--version"], text=True) for name in (QEMU, *words[1:])]
        print(*(line for text in each for line in text.splitlines()[:1]), acceleration(), sep=", ")
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, default=1)
    parser.add_argument("--tap", default="", help="of the first machine's network device")
    parser.add_argument("--hub", default="", metavar="COMMAND", help="whose socket is hub.sock")
    parser.add_argument("--memory", default="16MiB", help="that the hub shares with each machine")
    parser.add_argument("--no-iommu", action="store_true")
    parser.add_argument("ringtap", type=Path)
    parser.add_argument("programs", type=Path, nargs="*", help="that the machines have, too")
    asked = parser.parse_args(words)
    if why := unable():
        print(why, file=sys.stderr)
        return 1
    try:
        with ExitStack() as stack:
            host = Host(stack, asked)
            with Server(host) as server:
                print(READY, flush=True)
                try:
                    server.serve_forever()
                except KeyboardInterrupt:
                    pass
            if host.hub:
                host.hub.end()
    except GuestError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
