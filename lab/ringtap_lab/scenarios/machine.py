# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where a result was made: machine, kernel, and how quiet it was."""

from __future__ import annotations

import datetime
import os
import subprocess
import time
from pathlib import Path

from ringtap_lab.agent import counters

#: Above this, other work shares the cores with what is measured.
BUSY_SHARE = 0.05


def _output(command: list[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=20, cwd=cwd
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


def revision(root: Path) -> str:
    """The git revision, and whether the tree differs from it."""
    git = ["git", "-c", f"safe.directory={root}"]
    text = _output([*git, "describe", "--always", "--abbrev=12", "--dirty"], root).strip()
    return text.splitlines()[-1] if text else "unknown"


def facts() -> dict[str, object]:
    """CPU, cores, memory, kernel and system."""
    found = counters.facts()
    return {key: found[key] for key in ("cpu", "architecture", "cores", "memory_mib", "virtual", "kernel", "system")}


def now() -> str:
    """The time, UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def busy_share(seconds: float) -> float:
    """Share of all cores that is not idle, over so many seconds."""
    before = _cpu_times()
    time.sleep(seconds)
    total, idle = (after - first for after, first in zip(_cpu_times(), before))
    return 1 - idle / total if total else 0.0


def _cpu_times() -> tuple[int, int]:
    fields = [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields), fields[3] + fields[4]


def wait_quiet(patience_seconds: float) -> dict[str, float]:
    """Waits until the cores are idle, but not for ever; gives what it found.

    The load average remembers a minute, such as the build before a benchmark; the share of busy
    cores is of this very moment.
    """
    end = time.monotonic() + patience_seconds
    while (share := busy_share(1.0)) > BUSY_SHARE and time.monotonic() < end:
        pass
    return {"busy_share": round(share, 3), "load_average": os.getloadavg()[0]}
