# SPDX-License-Identifier: MIT OR Apache-2.0
"""The attackers' programs."""

import json
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from ringtap_checks.attack import programs
from ringtap_checks.attack.attacks import ATTACKS


class Attacks(unittest.TestCase):
    def test_every_attack_says_what_it_does(self):
        for name, attack in ATTACKS.items():
            self.assertTrue(attack.__doc__, name)

    def test_a_number_holds_all_parts_of_an_instruction(self):
        self.assertEqual(programs.instruction(0x15, 0x0800, 2, 3), 0x15 | 2 << 16 | 3 << 24 | 0x0800 << 32)
        self.assertEqual(programs.instruction(0x05, -1) >> 32, 0xFFFF_FFFF)

    def test_programs_are_as_long_as_a_filter_may_be(self):
        for program in (programs.looping(), programs.jeq_chain(), programs.long_valid()):
            self.assertLessEqual(len(program), programs.MAX_INSTRUCTIONS)
            self.assertGreater(len(program), programs.MAX_INSTRUCTIONS - 10)


class Mix(unittest.TestCase):
    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become another user")
    def test_a_mix_ends_at_ctrl_c_and_says_how_often_it_tried(self):
        script = Path(__file__).resolve().parents[1] / "ringtap_checks/attack/attacks.py"
        command = "mix --socket /nonexistent --only garbage,liar,hoarding --slice 0.1 --at-once 2"
        # A test that runs in the background ignores Ctrl-C, and would pass that on.
        heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        with subprocess.Popen([sys.executable, script, *command.split()], stdout=subprocess.PIPE, text=True,
                              preexec_fn=heed) as mix:  # fmt: skip
            try:
                begins, first = (json.loads(mix.stdout.readline()) for _ in range(2))
                mix.send_signal(signal.SIGINT)
                *_, last = mix.stdout
            except BaseException:
                mix.kill()
                raise
        self.assertEqual(begins["type"], "begins")
        self.assertEqual(mix.returncode, 0)
        self.assertGreaterEqual(json.loads(last)["tried"], first["tried"])
        self.assertEqual(json.loads(last)["broken"], [])


if __name__ == "__main__":
    unittest.main()
