# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the command line may say, and what follows."""

import contextlib
import io
import unittest

from ringtap_lab.scenarios import bench
from ringtap_lab.scenarios.options import Settings, parse_arguments, settings


def parsed(*words):
    return settings(parse_arguments(list(words), bench.names()))


class Options(unittest.TestCase):
    def test_no_words_are_a_full_run(self):
        self.assertEqual(parsed(), Settings())
        self.assertTrue(parsed().is_full())
        self.assertTrue(parsed("--rounds", "7").is_full())

    def test_less_is_not_full(self):
        for words in (["--quick"], ["--rounds", "4"], ["--sizes", "64"], ["--only", "pool"]):
            self.assertFalse(parsed(*words).is_full(), words)

    def test_words_go_before_what_quick_means(self):
        chosen = parsed("--quick", "--rounds", "3")
        self.assertEqual((chosen.rounds, chosen.sizes), (3, (64, 1500)))

    def test_nonsense_is_refused(self):
        for words in (["--only", "tcpdmp"], ["--sizes", "9000"], ["--sizes", "a"],
                      ["--rounds", "0"], ["--seconds", "0"]):  # fmt: skip
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                parsed(*words)

    def test_a_named_contender_brings_the_scenarios_it_takes_part_in(self):
        found = [one.name for one in bench.chosen(("tap exclusive",))]
        self.assertEqual(found, ["capture"])
        self.assertEqual([one.name for one in bench.chosen(("pool",))], ["pool"])
        self.assertEqual(len(bench.chosen(())), len(bench.SCENARIOS))
