# SPDX-License-Identifier: MIT OR Apache-2.0
"""The exit status of the recipes."""

import contextlib
import io
import unittest
from pathlib import Path
from unittest import mock

from ringtap_checks import recipes
from ringtap_checks.tool import ToolError


def works(_: Path) -> str:
    return "done"


def fails(_: Path) -> str:
    raise ToolError("no packets")


class ExitStatus(unittest.TestCase):
    def ran(self, *found: tuple) -> tuple[int, str]:
        """The status and the last line with these recipes: a program and what it does."""
        told = io.StringIO()
        listed = [("one", program, recipe) for program, recipe in found]
        with mock.patch("ringtap_checks.recipes.RECIPES", listed), \
                contextlib.redirect_stdout(told):
            return recipes.run_installed(Path()), told.getvalue().splitlines()[-1]

    def test_a_recipe_that_is_skipped_is_counted(self):
        ran = self.ran(("sh", works), ("no-such-program", works))
        self.assertEqual(ran, (0, "recipes: 0 of 2 FAILED, 1 SKIPPED"))

    def test_without_any_program_nothing_was_tested(self):
        self.assertEqual(self.ran(("no-such-program", works))[0], 2)

    def test_a_failure_is_one_beside_skipped_recipes(self):
        self.assertEqual(self.ran(("sh", fails), ("sh", works), ("no-such-program", works))[0], 1)
