# SPDX-License-Identifier: MIT OR Apache-2.0
"""`scripts/prepare` with an apt that does not know or install everything, and the documents of the packages."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from ringtap_lab.manager import programs

HOME = Path(__file__).resolve().parents[2]
APT_GET = """#!/bin/bash
echo "$*" >>"$APT_LOG"
case "$*" in *install*broken*) exit 100 ;; esac
"""
APT_CACHE = """#!/bin/bash
case $2 in good | better | broken) echo "Package: $2" ;; esac
"""


def prepare(folder: Path, needs: str) -> tuple[subprocess.CompletedProcess, list[str]]:
    """Runs the script for `make check` with these needs; also what apt was asked to install."""
    text = (HOME / "scripts/prepare").read_text()
    text = re.sub(r"(?m)^check_needs=.*", f"check_needs=({needs})", text)
    (folder / "scripts").mkdir()
    for name, content in (("scripts/prepare", text), ("apt-get", APT_GET), ("apt-cache", APT_CACHE)):
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    for name in ("Cargo.toml", "rust-toolchain.toml"):
        (folder / name).write_text((HOME / name).read_text())
    log = folder / "log"
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "APT_LOG": str(log)}
    command = ["bash", str(folder / "scripts/prepare"), "check"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    asked = [line.split("recommends ")[1] for line in log.read_text().splitlines() if "install" in line]
    return done, asked


@unittest.skipIf(os.geteuid(), "needs root, as apt does")
class Prepare(unittest.TestCase):
    def test_it_goes_on_without_packages_that_apt_does_not_know_or_install(self):
        with tempfile.TemporaryDirectory() as folder:
            done, asked = prepare(Path(folder), "no-1:good no-2:broken no-3:unheard no-4:better")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(asked, ["better broken good", "better", "broken", "good"])
        self.assertIn("apt knows no package of these names, what needs them will be skipped: unheard", done.stdout)
        self.assertIn("broken cannot be installed", done.stdout)

    def test_it_names_a_compiler_of_cxx(self):
        text = (HOME / "scripts/prepare").read_text()
        self.assertTrue(" c++:g++ " in text)


class Documents(unittest.TestCase):
    def test_the_documents_of_the_packages_have_no_dead_link(self):
        script = HOME / "packaging/documents.py"
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([script, folder], check=True)
            for name in ("LICENSE-APACHE", "LICENSE-MIT", "ringtap.rules.yml", "ringtap.json", "ringtap-extcap"):
                (Path(folder) / name).touch()
            subprocess.run([script, "--check", folder], check=True)
            # The check finds a dead link.
            (Path(folder) / "bad.md").write_text("[x](../nowhere.md)")
            checked = subprocess.run([script, "--check", folder], capture_output=True, text=True, check=False)
        self.assertEqual(checked.returncode, 1)
        self.assertIn("bad.md: ../nowhere.md", checked.stderr)


class Programs(unittest.TestCase):
    def test_a_relative_path_of_the_program_holds_in_other_folders(self):
        with mock.patch.object(programs, "_compiled", lambda name, *_: Path(name)):
            found = programs.here(Path("target/release/ringtap"), print)
        self.assertEqual(found["ringtap"], str(Path.cwd() / "target/release/ringtap"))
