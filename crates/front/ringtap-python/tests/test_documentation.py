# SPDX-License-Identifier: MIT OR Apache-2.0
"""The examples of docs/python.md run."""

import contextlib
import io
import pathlib
import re
import unittest

PAGE = pathlib.Path(__file__).parents[4] / "docs" / "python.md"


class Page(unittest.TestCase):
    def test_each_example_runs(self) -> None:
        examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        self.assertGreaterEqual(len(examples), 4)
        for example in examples:
            with self.subTest(example=example), contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(example, str(PAGE), "exec"), {})
            self.assertTrue(printed.getvalue())


if __name__ == "__main__":
    unittest.main()
