# SPDX-License-Identifier: MIT OR Apache-2.0
"""The attackers' programs and the chaos run's arithmetic."""

import unittest

from ringtap_lab.attack import programs
from ringtap_lab.attack.attacks import ATTACKS
from ringtap_lab.scenarios import chaos
from ringtap_lab.scenarios.parse import Report


def phase(lost: int, missing: int, lossless: bool = True, refused: int = 0) -> chaos.Phase:
    """A phase of 100 packets with two equal readers."""
    report = Report(delivered=100 - lost, lost=lost, offered=100, balanced=True)
    plan = chaos.Plan("paced", "1kpps", 1, [], lossless)
    return chaos.Phase(plan, 100, refused, 10**9, [report] * 2, [missing] * 2, 1, 1, 0.0)


def failed(one: chaos.Phase) -> list[str]:
    """The checks that did not hold, without the phase's name."""
    return [name.removeprefix("paced: ") for name, _, held in chaos.checks(one) if not held]


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


class Checks(unittest.TestCase):
    def test_nothing_lost_is_fine(self):
        self.assertEqual(failed(phase(lost=0, missing=0)), [])

    def test_a_loss_fails_where_none_is_allowed(self):
        self.assertEqual(failed(phase(lost=1, missing=1)), ["honest readers lost 0"])
        self.assertEqual(failed(phase(lost=1, missing=1, lossless=False)), [])

    def test_a_packet_that_is_missing_and_not_counted_fails(self):
        self.assertEqual(failed(phase(lost=0, missing=1)), ["numbers in the packets agree"])
        self.assertEqual(failed(phase(lost=0, missing=1, refused=1)), [], "it was never sent")

    def test_memory_may_stay_with_the_allocator_and_descriptors_may_not(self):
        before = chaos.Belongings(30, 10, 1000)
        self.assertTrue(chaos.Belongings(30, 10, 1000 + chaos.MAX_GROWTH_KIB).within(before))
        self.assertFalse(chaos.Belongings(31, 10, 1000).within(before))
        self.assertFalse(chaos.Belongings(30, 11, 1000).within(before))

    def test_missing_numbers_are_read(self):
        self.assertEqual(chaos._missing("  stamps: 9 packets from number 0, 1,234 missing, 0 out"), 1234)


if __name__ == "__main__":
    unittest.main()
