# SPDX-License-Identifier: MIT OR Apache-2.0
"""Folder of the repository, and what `make` builds in it."""

from __future__ import annotations

import os
from pathlib import Path

_SOURCE = Path(__file__).resolve().parents[2]
#: Root of the repository; the working folder if the package was installed without it.
ROOT = _SOURCE if (_SOURCE / "lab" / "pyproject.toml").exists() else Path.cwd()
RESULTS = ROOT / "bench" / "results"


def target() -> Path:
    """Cargo's target folder."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()


def ringtap() -> Path:
    """The program `ringtap` that `make build` builds."""
    return target() / "release" / "ringtap"
