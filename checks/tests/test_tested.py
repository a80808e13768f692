# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests that are missing in a run, skipped, or not what a promise needs, are named."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path

from ringtap_checks import tested

SOURCE = """
macro_rules! each {
    ($($name:ident: $value:literal;)*) => {$(
        #[test]
        fn $name() {}
    )*};
}

each! {
    made_by_a_macro: 1;
    made_by_it_too: 2;
}

#[test]
#[should_panic(expected = "x")]
fn written_by_hand() {}

    #[test]
    fn with_arguments(bytes in any()) {}

fn no_test() {}
"""

LOG = """
test a::made_by_a_macro ... ok
test made_by_it_too ... SKIPPED: a::made_by_it_too: needs the program x
ok
test a::written_by_hand - should panic ... FAILED
"""

PAGE = """| No. | Promise | Held by | Last result |
|---:|---|---|---|
| 1 | 0 lost | `made_by_a_macro` | ? |
| 2 | 0 lost | `made_by_a_macro`, `made_by_it_too` | passes |
| 3 | 0 lost | `written_by_hand`, `with_arguments` | passes |
| 4 | 0 lost | `ringtap-lab soak` | 0 |
"""


class Tested(unittest.TestCase):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        before = os.getcwd()
        os.chdir(folder)
        self.addCleanup(os.chdir, before)
        Path("crates/a/b/tests").mkdir(parents=True)
        Path("crates/a/b/tests/x.rs").write_text(SOURCE)
        Path("logs").mkdir()
        Path("logs/network.log").write_text(LOG)

    def check(self, *skips):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = tested.check(Path("logs"), *skips)
        return status, output.getvalue()

    def test_tests_that_macros_make_are_counted(self):
        self.assertEqual(
            tested.written(SOURCE),
            ["written_by_hand", "with_arguments", "made_by_a_macro", "made_by_it_too"],
        )

    def test_a_test_that_did_not_run_is_named(self):
        status, told = self.check(None)
        self.assertEqual(status, 1)
        self.assertIn("network: 1 tests are written and did not run: with_arguments", told)
        Path("logs/network.log").write_text(LOG + "test with_arguments ... ok\n")
        self.assertEqual(self.check(None)[0], 0)

    def test_a_skip_that_the_list_does_not_have_is_a_fault(self):
        Path("logs/network.log").write_text(LOG + "test with_arguments ... ok\n")
        Path("skips").write_text("# none\n")
        status, told = self.check(Path("skips"))
        self.assertEqual(status, 1)
        self.assertIn("skipped WITHOUT PERMISSION: made_by_it_too: needs the program x", told)
        Path("skips").write_text("made_by_it_too: needs : x is not packaged\n")
        status, told = self.check(Path("skips"))
        self.assertEqual((status, "(x is not packaged)" in told), (0, True))

    def test_a_promise_has_the_result_of_its_tests(self):
        page = tested.with_results(PAGE, *tested.outcomes(Path("logs")))
        results = [line.split("|")[-2].strip() for line in page.splitlines()[2:]]
        self.assertEqual(
            results,
            [
                "passes",
                "skipped: `made_by_it_too`",
                "FAILED: `written_by_hand`, did not run: `with_arguments`",
                "0",
            ],
        )


if __name__ == "__main__":
    unittest.main()
