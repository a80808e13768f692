# SPDX-License-Identifier: MIT OR Apache-2.0
"""Machines that host contenders: a shell of this machine stands for the one in a guest."""

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from ringtap_lab.guests import host, machine, run

#: Reads until SIGINT, and says how it ended.
READER = """python3 -c 'import signal, sys, time;
signal.signal(signal.SIGINT, lambda *_: (print("received", sys.argv[1]), sys.exit({status})));
print("ready", flush=True); time.sleep(60)' "udp port 9" """
SHELL = 'echo GUEST started; while read -r line; do eval "$line"; done'


class Fake(machine.Guest):
    def __init__(self, name: str, folder: Path) -> None:
        machine.Program.__init__(self, name, ["sh", "-c", f"cd {folder}; {SHELL}"], folder)


class Hosting(unittest.TestCase):
    def setUp(self) -> None:
        stack = self.enterContext(ExitStack())
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.chdir(self.folder)
        self.addCleanup(os.chdir, Path(__file__).parent)
        self.machines = [stack.enter_context(Fake(f"vm{number}", self.folder)) for number in range(2)]
        with mock.patch.object(host.Host, "__init__", lambda self: None):
            made = host.Host()
        made.hub, made.attached = None, []
        made._turns = itertools.cycle([(one, threading.Lock()) for one in self.machines])
        made._numbers = itertools.count()
        server = stack.enter_context(host.Server(made))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)

    def client(self, *words: str) -> subprocess.Popen:
        started = subprocess.Popen([sys.executable, run.__file__, *words], stdout=subprocess.PIPE, text=True)
        self.addCleanup(started.wait)
        self.addCleanup(started.kill)
        self.addCleanup(started.stdout.close)
        return started

    def test_programs_run_in_the_machines_by_turns_until_their_clients_are_asked_to_end(self):
        clients = [self.client(READER.format(status=status), "ready") for status in (0, 3)]
        for one in clients:
            self.assertEqual(one.stdout.readline(), "ready\n")
        each = [one.run("echo out*").strip() for one in self.machines]
        self.assertEqual(each, ["out0 out1"] * 2)
        for one, status in zip(clients, (0, 3), strict=True):
            one.send_signal(signal.SIGINT)
            said = one.stdout.read()
            self.assertRegex(said, r"\Aguest_ns 0\nringtap_ns 0\nready\nreceived udp port 9\n\nstatus \d\n\Z")
            self.assertTrue(said.endswith(f"status {status}\n"))
            self.assertEqual(one.wait(), int(status > 0))

    def test_a_program_that_does_not_start_tells_why_at_its_end(self):
        with mock.patch.object(host, "LOOKS", 1):
            one = self.client("no-such-program", "ready")
            self.assertEqual(one.stdout.readline(), "ready\n")
            one.send_signal(signal.SIGINT)
            self.assertRegex(one.stdout.read(), r"no-such-program: not found\n\nstatus 127\n\Z")
            self.assertEqual(one.wait(), 1)


class Programs(unittest.TestCase):
    def test_a_program_that_ends_badly_or_says_nothing_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            shell = "trap 'exit 3' INT; echo up; while :; do sleep 0.01; done"
            with machine.Program("bad", ["sh", "-c", shell], Path(folder)) as one:
                one.wait_for("up")
                self.assertGreater(one.ran_ns(), 0)
                with self.assertRaisesRegex(machine.GuestError, "bad: exit code 3: up"):
                    one.end()
            with machine.Program("mute", ["true"], Path(folder)) as one, \
                    self.assertRaisesRegex(machine.GuestError, "mute: no 'up'"):  # fmt: skip
                one.wait_for("up")


if __name__ == "__main__":
    unittest.main()
