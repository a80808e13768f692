# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `opening`: how long a libpcap program waits for an open, a filter, a change of it, and the close."""

from __future__ import annotations

import json
import shlex
import subprocess

import figures
import parse
from contenders import Contender
from run import Run

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
    rows: dict[str, list[dict]] = {one.name: [] for one in CONTENDERS}
    for number in range(run.settings.open_rounds):
        for one in CONTENDERS:
            row = run.attempt(one, lambda one=one: _opened(run, one))
            if row is None:
                continue
            rows[one.name].append({"round": number, **row})
            steps = ", ".join(f"{key.removesuffix('_ns')} {row[key] / 1e6:.1f} ms" for key in KEYS)
            run.say(f"opening  round {number + 1}/{run.settings.open_rounds}  {one.name:<20} {steps}")
    found = {
        one.name: {
            **run.entry(one),
            "rounds": rows[one.name],
            "summary": figures.summary(rows[one.name], KEYS),
        }
        for one in CONTENDERS
    }
    return {"contenders": found}


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
    ratios = figures.ratios(ours, theirs, "all_ns")
    return figures.spread(ratios)["median"] if ratios else None


def change_ms(result: dict) -> float | None:
    """Time of a change of the filter, in milliseconds."""
    found = result.get("opening", {}).get("contenders", {}).get(TAP.name, {})
    change = found.get("summary", {}).get("change_ns")
    return change["median"] / 1e6 if change else None
