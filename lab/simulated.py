# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `sim`: the simulated NIC at full speed, in real time.

Its capture thread runs on one core, a reader that also steps the distributor on the other. The
example `sim_bench` does the rounds, checks what it reads, and fails otherwise.
"""

from __future__ import annotations

import json
import shlex
import subprocess

import pool
from run import Run

#: WireCAP-B-(256,500).
CHUNKS, PACKETS = 500, 256
ROUND_SECONDS = 0.6


def seconds(run: Run) -> float:
    """About how long it takes."""
    return run.settings.pool_rounds * ROUND_SECONDS


def run(run: Run) -> dict:
    """Gives the spread over the rounds, by the pool's name in the WireCAP paper."""
    command = f"{run.programs.sim_bench} {run.settings.pool_rounds} {CHUNKS} {PACKETS}"
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, text=True, check=True, timeout=120
        )
        found = read(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        words = (getattr(error, "stderr", None) or "").strip()
        run.problem(f"sim: {error} {words}")
        return {}
    for name, row in found.items():
        run.say(f"sim {name}  {row['summary']['mpps']['median']:.1f} Mpps")
        row["command"] = command
    return found


def read(text: str) -> dict:
    """The JSON line of `sim_bench`; ValueError if it is not there."""
    for line in text.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            mpps = {key: row[f"{name}_mpps"] for key, name in pool.NAMES.items()}
            name = f"({row['packets_per_chunk']},{row['chunks']})"
            return {name: {"summary": {"mpps": mpps}, "details": row}}
    raise ValueError(f"sim_bench told of nothing: {text!r}")
