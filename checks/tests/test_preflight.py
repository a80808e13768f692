# SPDX-License-Identifier: MIT OR Apache-2.0
"""Why the lab refuses to run."""

import unittest
from pathlib import Path
from unittest import mock

from ringtap_checks.preflight import unable

HERE = Path(__file__)


class Preflight(unittest.TestCase):
    def asked(self, uid: int = 0, cores: int = 2, program: Path = HERE) -> str | None:
        with mock.patch("os.geteuid", return_value=uid), \
                mock.patch("os.cpu_count", return_value=cores):
            return unable("ringtap-lab picture", "build", [HERE, program])

    def test_what_is_missing_is_said_with_what_to_do(self):
        self.assertIsNone(self.asked())
        self.assertIn("sudo ringtap-lab picture", self.asked(uid=1000))
        self.assertIn("two cores", self.asked(cores=1))
        self.assertIn("`make build`", self.asked(program=HERE / "absent"))
