# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `sim`: the simulated NIC at full speed, in real time.

Its capture thread runs on one core, a reader that also steps the distributor on the other. The
example `sim_bench` does the rounds, checks what it reads, and fails otherwise.
"""

from __future__ import annotations

import json

from ringtap_lab.scenarios import pool
from ringtap_lab.scenarios.run import Run

#: WireCAP-B-(256,500).
CHUNKS, PACKETS = 500, 256
ROUND_SECONDS = 0.6


def seconds(run: Run) -> float:
    """About how long it takes."""
    return run.settings.pool_rounds * ROUND_SECONDS


def run(run: Run) -> dict:
    """Gives the spread over the rounds, by the pool's name in the WireCAP paper."""
    command = f"{run.programs.sim_bench} {run.settings.pool_rounds} {CHUNKS} {PACKETS}"
    return pool.rounds(run, "sim", command, read)


def read(text: str) -> dict:
    """The JSON line of `sim_bench`; ValueError if it is not there."""
    for line in text.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            return {f"({row['packets_per_chunk']},{row['chunks']})": pool.spread(row)}
    raise ValueError(f"sim_bench told of nothing: {text!r}")
