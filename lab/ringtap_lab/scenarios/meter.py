# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `probe-kernel`: flow metering in the kernel beside the floor, and the memory of many flows."""

from __future__ import annotations

from pathlib import Path

from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import contenders, figures, parse, trial
from ringtap_lab.scenarios.contenders import Contender
from ringtap_lab.scenarios.flows import config
from ringtap_lab.scenarios.ipfix import Collector
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import Tool
from ringtap_lab.scenarios.trial import Traffic, send

#: Flows of the packets that are metered, by turns.
COUNTS = (1, 1 << 10, 1 << 16)
KERNEL = Contender(
    "flows in the kernel",
    "{ringtap} probe -i 'tap:{dev}?exclusive&mode=native' --config {scratch}/kernel.toml --json",
    parse.ringtap, "xdp", "ringtap: probe of", note="packets end here",
)  # fmt: skip
WORKER = Contender(
    "flows in a worker",
    contenders.TASKSET + "{ringtap} probe -i 'tap:{dev}?exclusive&pool={ring_mib}MiB' --workers 1 "
    "--config {scratch}/workers.toml --json",
    parse.ringtap, "xdp", "ringtap: probe of",
)  # fmt: skip
#: Flows that are offered to a table for a million, and seconds to send one packet of each.
MILLION, STATES, STATE_PPS = 1_000_000, (1_000_000, 10_000_000), 1_000_000


def seconds(run: Run) -> float:
    """About how long it takes."""
    each = run.settings.seconds + 2
    return run.settings.rounds * (1 + len(COUNTS)) * each + sum(STATES) / STATE_PPS + 20


def run(run: Run) -> dict:
    """Gives the rates by number of flows, and the memory by number of flows that were offered."""
    (sandbox.SCRATCH / "kernel.toml").write_text(config("kernel"))
    floor = contenders.FLOOR
    names = {floor.name: (floor, 1)} | {f"{count:,} flows": (KERNEL, count) for count in COUNTS}
    rows: dict[str, list[dict]] = {name: [] for name in names}
    for number in range(run.settings.rounds):
        for name, (one, flows) in names.items():
            traffic = Traffic(64, "max", run.settings.seconds, flows)
            row = run.attempt(one, lambda one=one: trial.measure(run.programs, one, traffic))
            if row is None:
                continue
            rows[name].append({"round": number, **row})
            run.say(
                f"probe-kernel  {name:<16} {row['delivered_mpps']:7.3f} Mpps,"
                f" {row['cpu_percent']:.2f} % of a core"
            )
    keys = ("delivered_mpps", "cpu_percent")
    found = {
        name: {**run.entry(one), "rounds": rows[name], "summary": figures.summary(rows[name], keys)}
        for name, (one, _) in names.items()
    }
    states = [run.attempt(WORKER, lambda flows=flows: _state(run, flows)) for flows in STATES]
    return {"rates": found, "states": [row for row in states if row]}


def _state(run: Run, flows: int) -> dict:
    """Memory of a worker whose table holds a million flows, once so many have come."""
    with Collector() as collector:
        (sandbox.SCRATCH / "workers.toml").write_text(config("workers", collector.port))
        with Tool(run.programs.fill(WORKER.command)) as tool:
            tool.wait_ready(WORKER.ready, WORKER.attached)
            before = _anonymous_kib(tool)
            sent = send(run.programs, Traffic(64, f"{STATE_PPS}pps", 1.02 * flows / STATE_PPS, flows))
            tool.wait_idle(0.5)
            mib = (_anonymous_kib(tool) - before) / 1024
            ledger = parse.last_json(output := tool.end(), "analysed", "ringtap probe")
    row = {
        "offered": flows, "packets": sent.packets, "analysed": ledger["analysed"], "mib": mib,
        "evicted": ledger["flows"]["evicted"], "problems": [], "output": output,
    }  # fmt: skip
    run.say(f"probe-kernel  {flows:,} flows offered: {mib:.0f} MiB, {row['evicted']:,} evicted")
    return row


def _anonymous_kib(tool: Tool) -> int:
    """Memory of a process that is neither the pool's nor a file's."""
    for line in Path(f"/proc/{tool.process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise parse.ReportError("the kernel does not say RssAnon")


def against_floor(result: dict, flows: int) -> float | None:
    """Median over the rounds: packets metered in the kernel, divided by those that the floor drops."""
    found = result.get("probe-kernel", {}).get("rates", {})
    good = [
        [row for row in found.get(name, {}).get("rounds", []) if not row["problems"]]
        for name in (f"{flows:,} flows", contenders.FLOOR.name)
    ]
    ratios = figures.ratios(*good, "delivered_mpps")
    return figures.spread(ratios)["median"] if ratios else None


def fewer_flows(result: dict) -> str:
    """The same with fewer flows, in words."""
    fewer = {flows: against_floor(result, flows) for flows in COUNTS[:-1]}
    return ", ".join(f"{flows:,} flows {ratio:.2f} x" for flows, ratio in fewer.items() if ratio)


def cpu_percent(result: dict) -> float | None:
    """User space's share of a core with most flows."""
    found = result.get("probe-kernel", {}).get("rates", {}).get(f"{COUNTS[-1]:,} flows", {})
    return found.get("summary", {}).get("cpu_percent", {}).get("median")


def mib(result: dict) -> float | None:
    """The largest memory of all states."""
    states = result.get("probe-kernel", {}).get("states", [])
    return max((row["mib"] for row in states), default=None)


def evicted(result: dict) -> str:
    """Flows that found no room, in words."""
    states = result.get("probe-kernel", {}).get("states", [])
    return "; ".join(f"{row['offered']:,} flows: {row['evicted']:,} evicted" for row in states)
