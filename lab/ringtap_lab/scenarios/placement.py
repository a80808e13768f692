# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `placement`: reader and receiving kernel on one core (A:A), on two (A:B), by the scheduler.

After Braun et al. (IMC 2010). The sender stands for the NIC: its core is the one that receives.
It takes part of that core, which no real NIC would: with A:A the reader gets what is left.
"""

from __future__ import annotations

from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import contenders, figures, parse
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import Tool
from ringtap_lab.scenarios.trial import Traffic, send

SIZE = 64
RATES = ("10000pps", "100000pps", "500000pps", "1Mpps", "2Mpps", "max")
AA, AB, FREE, OURS = "A:A", "A:B", "scheduler", "--cpu auto"
CPUS = {
    AA: "--cpu reader={sender_cpu},capture={sender_cpu}",
    AB: "--cpu reader={reader_cpu},capture={reader_cpu}",
    FREE: "",
    OURS: "--cpu auto",
}
COMMAND = "{ringtap} count --quiet --json --latency -i 'tap:{dev}?exclusive&pool={ring_mib}MiB' "
OVERHEAD_SECONDS = 1.5
QUIET_SECONDS = 0.3
#: Losses below this are none, for a choice.
LITTLE_PERCENT = 0.01


def seconds(run: Run) -> float:
    """About how long it takes."""
    each = run.settings.seconds + OVERHEAD_SECONDS
    return each * len(RATES) * len(CPUS) * run.settings.low_rate_rounds


def run(run: Run) -> dict:
    """By rate and placement, every round and the spread; and which one to choose."""
    found: dict[str, dict] = {}
    for rate in RATES:
        rows: dict[str, list[dict]] = {name: [] for name in CPUS}
        names = list(CPUS)
        for number in range(run.settings.low_rate_rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                row = run.attempt(
                    contenders.TAP_EXCLUSIVE, lambda name=name: _measure(run, name, rate)
                )
                if row is not None:
                    rows[name].append({"round": number, **row})
        keys = ("delivered_mpps", "loss_percent", "reader_ns", "median_us")
        ways = {
            name: {"rounds": each, "summary": figures.summary(each, keys)}
            for name, each in rows.items()
        }
        found[rate] = {"ways": ways, "choice": choice(ways)}
        run.say(f"placement {rate:>10}  best: {found[rate]['choice']}")
    return found


def _measure(run: Run, name: str, rate: str) -> dict:
    command = run.programs.fill(COMMAND + CPUS[name])
    with Tool(command) as tool:
        tool.wait_ready(None, "xdp")
        received, ran = sandbox.counter("rx_packets"), tool.cpu_ns()
        sent = send(run.programs, Traffic(SIZE, rate, run.settings.seconds))
        tool.wait_idle(QUIET_SECONDS)
        ran = tool.cpu_ns() - ran
        received = sandbox.counter("rx_packets") - received
        text = tool.end()
    report = parse.ringtap(text)
    problems = [] if report.balanced else ["its counters do not balance"]
    if received != sent.packets:
        problems.append(f"the device received {received} packets, {sent.packets} were sent")
    return {
        "offered": sent.packets,
        "delivered": report.delivered,
        "loss_percent": figures.loss_percent(sent.packets, report.delivered),
        "delivered_mpps": figures.rate_mpps(report.delivered, sent.elapsed_ns),
        "reader_ns": ran / max(1, report.delivered),
        "median_us": parse.latency(text)["median_ns"] / 1000,
        "problems": problems,
        "output": text,
    }


def choice(ways: dict) -> str:
    """The placement to choose: least loss, then most packets, then the least work of the reader."""
    known = {name: way["summary"] for name, way in ways.items() if way["summary"]}
    if not known:
        return "not measured"
    lost = {name: one["loss_percent"]["median"] for name, one in known.items()}
    least = max(min(lost.values()), LITTLE_PERCENT)
    good = [name for name in known if lost[name] <= least]
    most = max(known[name]["delivered_mpps"]["median"] for name in good)
    good = [name for name in good if known[name]["delivered_mpps"]["median"] >= 0.97 * most]
    return min(good, key=lambda name: known[name]["reader_ns"]["median"])
