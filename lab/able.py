# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whether this machine can run the lab at all."""

from __future__ import annotations

import os
from pathlib import Path


def unable(script: str, target: str, programs: list[Path]) -> str | None:
    """Why `script` cannot run, in words for its user; None if it can. `make TARGET` builds."""
    if os.geteuid() != 0:
        return f"needs root, for network namespaces and XDP: sudo python3 {script}"
    if (os.cpu_count() or 1) < 2:
        return "needs two cores: one for the sender, one for the readers"
    for path in programs:
        if not path.exists():
            return f"{path} is not built: `make {target}` builds what is needed"
    return None
