# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `pacing`: whether the sender keeps the rate that it was asked for.

Packets are those that the sender's device counted, and not those that anybody received.
"""

from __future__ import annotations

from ringtap_lab.scenarios import contenders, figures
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import Tool
from ringtap_lab.scenarios.trial import Traffic, send

SECONDS = 2.0
SIZE = 64
#: As `ringtap send` reads it, and in packets a second: 0.5 Gbit/s of 84 bytes each on a wire.
RATES = {
    "1000pps": 1_000.0,
    "10000pps": 10_000.0,
    "300000pps": 300_000.0,
    "0.5Gbps": 0.5e9 / 8 / (SIZE + 20),
}


def seconds(run: Run) -> float:
    """About how long it takes."""
    return len(RATES) * run.settings.low_rate_rounds * (SECONDS + 1)


def run(run: Run) -> dict:
    """By rate, the spread of the deviation over the rounds, in percent."""
    found: dict[str, dict] = {}
    for rate, asked_pps in RATES.items():
        rows = []
        for number in range(run.settings.low_rate_rounds):
            row = run.attempt(contenders.FLOOR, lambda: _measure(run, rate, asked_pps))
            if row is not None:
                rows.append({"round": number, **row})
        summary = figures.summary(rows, ("pps", "deviation_percent"))
        found[rate] = {"asked_pps": asked_pps, "rounds": rows, "summary": summary}
        spread = summary.get("deviation_percent")
        if spread:
            run.say(f"pacing {rate:>10}  at most {spread['max']:.3f} % off")
    return found


def _measure(run: Run, rate: str, asked_pps: float) -> dict:
    floor = contenders.FLOOR
    with Tool(run.programs.fill(floor.command), floor.stdin_ends_it) as tool:
        tool.wait_ready(floor.ready, floor.attached)
        sent = send(run.programs, Traffic(SIZE, rate, SECONDS))
        tool.end()
    pps = sent.packets / (sent.elapsed_ns / 1e9)
    off = abs(pps - asked_pps) / asked_pps * 100
    longer = abs(sent.elapsed_ns / 1e9 - SECONDS) / SECONDS * 100
    # A run that is longer than asked, with as many packets more, kept its rate and not its time.
    return {"pps": pps, "deviation_percent": max(off, longer), "problems": []}
