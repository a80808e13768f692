# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenarios `idle` and `low-rate`: what capture costs when nothing comes, and how late little is."""

from __future__ import annotations

import os
import time

from ringtap_lab.manager.battery import Case
from ringtap_lab.scenarios import contenders, figures, turns
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import Tool, leftovers
from ringtap_lab.scenarios.trial import contradictions

TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
LOW_RATE_PPS = 1000
LOW_RATE_SIZE = 128
SINCE_CAPTURE, SINCE_SENT = "median_ns", "sent_median_ns"
LOW_RATE = turns.named("tap latency", "packet latency", "libpcap immediate mode")
LATENCY_KEYS = (SINCE_CAPTURE, "p99_ns", "max_ns", SINCE_SENT)


def idle_seconds(run: Run) -> float:
    """About how long it takes."""
    return len(run.chosen(contenders.IDLE)) * (run.settings.idle_seconds + 2)


def idle(run: Run) -> dict:
    """Processor time that each contender uses while no packet comes."""
    found = {"seconds": run.settings.idle_seconds, "tick_ms": TICK_MS, "contenders": {}}
    for one in run.chosen(contenders.IDLE):
        row = run.attempt(one, lambda one=one: _idle(run, one))
        if row:
            run.say(
                f"idle {found['seconds']:g} s  {one.name:<24} {row['cpu_ticks']} ticks of"
                f" {TICK_MS} ms ({row['cpu_ns'] / 1e6:.2f} ms by the scheduler's clock)"
            )
        found["contenders"][one.name] = {**run.entry(one), "result": row}
    return found


def _idle(run: Run, contender: contenders.Contender) -> dict:
    with Tool(run.programs.fill(contender.command), contender.stdin_ends_it) as tool:
        tool.wait_ready(contender.ready, contender.attached)
        # Starting is over when it has nothing more to do.
        tool.wait_idle(contender.quiet_seconds)
        ticks, ran = tool.cpu_ticks(), tool.cpu_ns()
        time.sleep(run.settings.idle_seconds)
        ticks, ran = tool.cpu_ticks() - ticks, tool.cpu_ns() - ran
        text = tool.end()
    problems = contradictions(contender.parse(text), 0, 0)
    problems += [f"left behind: {one}" for one in leftovers()]
    return {"cpu_ticks": ticks, "cpu_ns": ran, "problems": problems, "output": text}


def low_rate_seconds(run: Run) -> float:
    """About how long it takes."""
    each = run.settings.low_rate_seconds + 1.2
    return len(run.chosen(LOW_RATE)) * run.settings.low_rate_rounds * each


def low_rate(run: Run) -> dict:
    """Time to a reader that sleeps, at 1,000 packets a second."""
    names = [one.name for one in run.chosen(LOW_RATE)]
    return low_rate_of(run, "low rate", names, run.settings.low_rate_rounds)


def low_rate_of(run: Run, title: str, names: list[str], rounds: int) -> dict:
    """The same of these contenders."""
    seconds = run.settings.low_rate_seconds
    cases = {
        name: Case(name, size=LOW_RATE_SIZE, rate=f"{LOW_RATE_PPS}pps", seconds=seconds) for name in names
    }
    return {
        "rate_pps": LOW_RATE_PPS,
        "size": LOW_RATE_SIZE,
        "contenders": latencies_of(run, title, cases, rounds, LATENCY_KEYS, turns.STAMPED),
    }


def latencies_of(
    run: Run, title: str, cases: dict[str, Case], rounds: int, keys: tuple[str, ...], sender: str
) -> dict[str, dict]:
    """Times to the contenders of these cases, with all rounds."""
    measured = turns.measure(run, title, list(cases.values()), rounds, sender)
    return {
        name: turns.entry(run, turns.KNOWN[case.contender], measured[case.key], keys) for name, case in cases.items()
    }


def latency_ratio(ours: list[dict], theirs: list[dict], key: str = SINCE_SENT) -> float | None:
    """Median over the rounds: our median time to a reader divided by the other's, from sending.

    The time stamps of two captures are taken at different places: XDP's before the host's stack,
    AF_PACKET's behind it. Only from sending do both times begin alike.
    """
    found = figures.ratios(ours, theirs, key)
    return figures.spread(found)["median"] if found else None


def latencies(ours: list[dict], theirs: list[dict]) -> str:
    """Both medians from sending; and the same from each one's own time stamp."""
    words = []
    for key in (SINCE_SENT, SINCE_CAPTURE):
        ratio = latency_ratio(ours, theirs, key)
        if ratio is not None:
            both = [figures.spread([row[key] for row in rows])["median"] for rows in (ours, theirs)]
            words.append((ratio, " and ".join(f"{one / 1e3:.1f}" for one in both) + " us"))
    if len(words) < 2:
        return ""
    (_, sent), (ratio, captured) = words
    return f"{sent}; each from its own time stamp {ratio:.2f} x, {captured}"
