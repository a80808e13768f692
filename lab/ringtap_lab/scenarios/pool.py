# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `pool`: the pool alone, a writer on one core and a reader on the other.

The example `pool_bench` does the rounds, checks every byte that it reads, and fails otherwise.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable

from ringtap_lab.scenarios.run import Run

CHUNKS = (500, 5000)
#: One round of one size on a slow machine.
ROUND_SECONDS = 0.5
#: Of the rounds.
SPREAD = ("median", "min", "max")


def seconds(run: Run) -> float:
    """About how long it takes; one round more maps the memory."""
    return (run.settings.pool_rounds + 1) * len(CHUNKS) * ROUND_SECONDS


def run(run: Run) -> dict:
    """Gives, by number of chunks, the spread over the rounds."""
    chunks = " ".join(map(str, CHUNKS))
    command = f"{run.programs.pool_bench} {run.settings.pool_rounds} {chunks}"
    return rounds(run, "pool", command, read)


def rounds(run: Run, title: str, command: str, read: Callable[[str], dict]) -> dict:
    """What a program of ours says of its rounds, as `read` finds it; nothing if it failed."""
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, text=True, check=True, timeout=300
        )
        found = read(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        words = (getattr(error, "stderr", None) or "").strip()
        run.problem(f"{title}: {error} {words}")
        return {}
    for name, row in found.items():
        run.say(f"{title} {name:>9}  {row['summary']['mpps']['median']:.2f} Mpps")
        row["command"] = command
    return found


def spread(line: dict) -> dict:
    """A line of such a program as a result."""
    mpps = {key: line[f"{key}_mpps"] for key in SPREAD}
    return {"summary": {"mpps": mpps}, "details": line}


def read(text: str) -> dict:
    """The JSON lines of `pool_bench`, by number of chunks; ValueError if one is missing."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    found = {str(line["chunks"]): spread(line) for line in lines}
    if list(found) != [str(one) for one in CHUNKS]:
        raise ValueError(f"pool_bench told of {list(found)} chunks, not of {CHUNKS}: {text!r}")
    return found
