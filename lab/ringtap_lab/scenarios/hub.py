# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenarios `hub-cpu` and `wake`: what the hub itself costs, and how late its readers wake up."""

from __future__ import annotations

import time
from contextlib import ExitStack

from ringtap_lab.scenarios import figures, quiet
from ringtap_lab.scenarios.crowd import HUB, faults, leave, subscription
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import leftovers, wait_all_idle
from ringtap_lab.scenarios.trial import Traffic, send

READERS = 4
SIZE = 64
KEYS = ("percent_of_core", "idle_ticks")
#: Both leave packets to the host's network stack.
WAKE = ["reader of the hub", "libpcap immediate mode"]


def cpu_seconds(run: Run) -> float:
    """About how long it takes."""
    return run.settings.hub_rounds * (run.settings.hub_seconds + run.settings.idle_seconds + 3)


def cpu(run: Run) -> dict:
    """The hub's share of a core at full speed with four readers, and its time when all is still."""
    rows = []
    for number in range(run.settings.hub_rounds):
        row = run.attempt(HUB, lambda: _cpu(run))
        if row is None:
            continue
        rows.append({"round": number, **row})
        run.say(
            f"hub-cpu  round {number + 1}/{run.settings.hub_rounds}  {row['percent_of_core']:.2f} %"
            f" of a core at {row['offered_mpps']:.2f} Mpps, {row['lost']} lost; idle"
            f" {row['idle_ticks']} ticks, {row['idle_ns'] / 1e6:.2f} ms in"
            f" {run.settings.idle_seconds:g} s"
        )
    found = {"readers": READERS, "idle_seconds": run.settings.idle_seconds, "contenders": {}}
    found["contenders"][HUB.name] = {
        **run.entry(HUB), "rounds": rows, "summary": figures.summary(rows, KEYS),
    }  # fmt: skip
    return found


def _cpu(run: Run) -> dict:
    traffic = Traffic(SIZE, "max", run.settings.hub_seconds)
    with ExitStack() as stack:
        tools = subscription(run, stack, READERS)
        hub = tools[0]
        ticks, ran = hub.cpu_ticks(), hub.cpu_ns()
        sent = send(run.programs, traffic)
        ticks, ran = hub.cpu_ticks() - ticks, hub.cpu_ns() - ran
        wait_all_idle(tools[1:], HUB.quiet_seconds)
        idle_ticks, idle_ran = hub.cpu_ticks(), hub.cpu_ns()
        time.sleep(run.settings.idle_seconds)
        idle_ticks, idle_ran = hub.cpu_ticks() - idle_ticks, hub.cpu_ns() - idle_ran
        texts = leave(tools)
    problems = faults(texts, sent.packets, sent.packets)
    problems += [f"left behind: {one}" for one in leftovers()]
    return {
        "offered_mpps": figures.rate_mpps(sent.packets, sent.elapsed_ns),
        "lost": sum(HUB.parse(text).lost for text in texts),
        "busy_ticks": ticks,
        "busy_ns": ran,
        "percent_of_core": 100.0 * ticks * quiet.TICK_MS * 1e6 / sent.elapsed_ns,
        "idle_ticks": idle_ticks,
        "idle_ns": idle_ran,
        "problems": problems,
        "output": "\n".join(texts),
    }


def wake_seconds(run: Run) -> float:
    """About how long it takes."""
    each = run.settings.low_rate_seconds + 2.5
    return len(WAKE) * run.settings.wake_rounds * each


def wake(run: Run) -> dict:
    """Time to a reader of another process that slept."""
    return quiet.low_rate_of(run, "wake", WAKE, run.settings.wake_rounds)


def percent_of_core(result: dict) -> float | None:
    """Median of the hub's share of a core."""
    values = [row["percent_of_core"] for row in figures.good_rounds(result, "hub-cpu", HUB.name)]
    return figures.spread(values)["median"] if values else None


def idle_ticks(result: dict) -> float | None:
    """Most ticks that the hub used while all was still."""
    rows = figures.good_rounds(result, "hub-cpu", HUB.name)
    return max((row["idle_ticks"] for row in rows), default=None)


def idle_exactly(result: dict) -> str:
    """The same by the scheduler's clock."""
    rows = figures.good_rounds(result, "hub-cpu", HUB.name)
    if not rows:
        return ""
    most = max(row["idle_ns"] for row in rows)
    return f"{most / 1e6:.2f} ms in {result['hub-cpu']['idle_seconds']:g} s"


def wake_rounds(result: dict) -> list[list[dict]]:
    """The rounds of the hub's reader, and of libpcap's."""
    return [figures.good_rounds(result, "wake", name) for name in WAKE]


def wake_ratio(result: dict) -> float | None:
    """The hub's median divided by libpcap's."""
    return quiet.latency_ratio(*wake_rounds(result))


def wake_exactly(result: dict) -> str:
    """Both medians."""
    return quiet.latencies(*wake_rounds(result))
