# SPDX-License-Identifier: MIT OR Apache-2.0
"""The types that the package promises to type checkers."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).parent
PAGE = TESTS.parents[3] / "docs" / "python.md"
# The types of duckdb change with its versions: they are not ours to keep.
CONFIG = """[mypy]
ignore_missing_imports = True
check_untyped_defs = True

[mypy-duckdb.*]
follow_imports = skip
"""


class Types(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "mypy.ini").write_text(CONFIG)

    def check(self, module: str, *arguments: str) -> None:
        """Runs a module of mypy from the temporary folder, where the package is the installed one."""
        command = [sys.executable, "-P", "-m", module, *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_stub_describes_the_module_that_was_built(self) -> None:
        # Dictionaries of the stub are no classes of the module. Before 3.12, Python has no name for a buffer.
        allowed = self.folder / "allowed"
        allowed.write_text(r"ringtap\._native\.(__all__|ColumnChoice|StreamChoice|Packet\.__buffer__|Slots\.__buffer__)" + "\n")
        options = ("--allowlist", str(allowed), "--mypy-config-file", "mypy.ini", "--ignore-disjoint-bases")
        self.check("mypy.stubtest", *options, "ringtap._native")

    def test_package_and_tests_fit_the_types(self) -> None:
        self.check("mypy", "-p", "ringtap")
        self.check("mypy", *(str(file) for file in TESTS.glob("*.py")))

    def test_the_examples_of_the_documentation_fit_the_types(self) -> None:
        examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        for number, example in enumerate(examples):
            (self.folder / f"example{number}.py").write_text(example)
        self.check("mypy", *(str(file) for file in self.folder.glob("example*.py")))


if __name__ == "__main__":
    unittest.main()
