# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a check needs before it can run: its arguments, rights, and built programs."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ringtap_lab import root


def unable(command: str, target: str, programs: list[Path]) -> str | None:
    """Returns why `command` cannot run, or None if it can. `make TARGET` builds what is missing."""
    if os.geteuid() != 0:
        return f"needs root, for network namespaces and XDP: sudo {command}"
    if (os.cpu_count() or 1) < 2:
        return "needs two cores: one for the sender, one for the readers"
    for path in programs:
        if not path.exists():
            return f"{path} is not built: `make {target}` builds what is needed"
    return None


def asked_program(name: str, target: str, about: str, words: list[str], lacks: str | None = None) -> Path | None:
    """The program that a check's arguments name; None, after the reason was told, if the check cannot run.

    `lacks` is what else the check found missing."""
    parser = argparse.ArgumentParser(prog=f"checks {name}", description=about.splitlines()[0])
    parser.add_argument("--ringtap", type=Path, default=root.ringtap())
    ringtap: Path = parser.parse_args(words).ringtap.resolve()
    if why := unable(f"scripts/checks {name}", target, [ringtap]) or lacks:
        print(f"{name}: {why}", file=sys.stderr)
        return None
    return ringtap
