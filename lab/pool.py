# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `pool`: the pool alone, a writer on one core and a reader on the other."""

from __future__ import annotations

import json
import shlex
import subprocess

import figures
from contenders import READER_CPU, SENDER_CPU
from run import Run

CHUNKS = (500, 5000)
ROUND_SECONDS = 2.0


def seconds(run: Run) -> float:
    """About how long it takes."""
    return run.settings.pool_rounds * len(CHUNKS) * (ROUND_SECONDS + 0.5)


def run(run: Run) -> dict:
    """Gives, by number of chunks, every round and the spread."""
    rows: dict[int, list[dict]] = {chunks: [] for chunks in CHUNKS}
    commands = {
        chunks: f"{run.programs.pool_bench} --chunks {chunks} --seconds {ROUND_SECONDS:g}"
        f" --writer-cpu {SENDER_CPU} --reader-cpu {READER_CPU}"
        for chunks in CHUNKS
    }
    for number in range(run.settings.pool_rounds):
        for chunks in CHUNKS:
            row = _once(run, commands[chunks])
            if row is None:
                continue
            rows[chunks].append({"round": number, **row})
            run.say(
                f"pool {chunks:>5} chunks  round {number + 1}/{run.settings.pool_rounds}"
                f"  {row['mpps']:.1f} Mpps"
            )
    return {
        str(chunks): {
            "command": commands[chunks],
            "rounds": rows[chunks],
            "summary": figures.summary(rows[chunks], ("mpps",)),
        }
        for chunks in CHUNKS
    }


def _once(run: Run, command: str) -> dict | None:
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, text=True, check=True, timeout=60
        )
        row = json.loads(done.stdout.strip().splitlines()[-1])
        return {**row, "mpps": float(row["mpps"])}
    except (subprocess.SubprocessError, OSError, ValueError, KeyError, IndexError) as error:
        run.problem(f"pool: {command}: {error}")
        return None
