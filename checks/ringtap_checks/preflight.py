# SPDX-License-Identifier: MIT OR Apache-2.0
"""Preflight check: what this machine lacks to run the lab."""

from __future__ import annotations

import os
from pathlib import Path


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
