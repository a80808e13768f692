# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `opening`: how long a libpcap program waits for an open, a filter, a change of it, and the close."""

from __future__ import annotations

import json
import shlex
import subprocess

from ringtap_lab.scenarios import parse, quiet
from ringtap_lab.scenarios.contenders import Contender
from ringtap_lab.scenarios.run import Run

#: Opens of one measurement, of which the median counts.
TIMES = 15
#: About how long one open may take, in seconds.
EACH_SECONDS = 0.3
#: Steps, and the sum of opening, filter and close.
KEYS = ("open_ns", "filter_ns", "change_ns", "close_ns", "all_ns")

_OPEN = f"{{scratch}}/pcap_open {{dev}} {TIMES}"
LIBPCAP = Contender("libpcap, opening", _OPEN, parse.ringtap, "nothing")
TAP = Contender(
    "tap, opening", "{ringtap} exec --quiet -- " + _OPEN, parse.ringtap, "nothing",
    note="a process that captures, a pool and two programs for each open",
)  # fmt: skip
CONTENDERS = [LIBPCAP, TAP]


def seconds(run: Run) -> float:
    """About how long it takes."""
    return run.settings.open_rounds * len(CONTENDERS) * TIMES * EACH_SECONDS


def run(run: Run) -> dict:
    """All rounds, by turns."""
    found = run.by_turns(
        run.settings.open_rounds, CONTENDERS, lambda one: _opened(run, one), _told, KEYS
    )
    return {"contenders": found}


def _told(name: str, row: dict) -> str:
    steps = (f"{key.removesuffix('_ns')} {row[key] / 1e6:.1f} ms" for key in KEYS)
    return f"opening  {name} {', '.join(steps)}"


def _opened(run: Run, contender: Contender) -> dict:
    command = run.programs.fill(contender.command)
    done = subprocess.run(
        shlex.split(command), check=True, capture_output=True, text=True, timeout=120
    )
    return {**json.loads(done.stdout), "problems": []}


def ratio(result: dict) -> float | None:
    """Open, filter and close over Ringtap, divided by libpcap's, round by round."""
    found = result.get("opening", {}).get("contenders", {})
    ours, theirs = (found.get(one.name, {}).get("rounds", []) for one in (TAP, LIBPCAP))
    return quiet.latency_ratio(ours, theirs, "all_ns")


def change_ms(result: dict) -> float | None:
    """Time of a change of the filter, in milliseconds."""
    found = result.get("opening", {}).get("contenders", {}).get(TAP.name, {})
    change = found.get("summary", {}).get("change_ns")
    return change["median"] / 1e6 if change else None
