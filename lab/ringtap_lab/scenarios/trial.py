# SPDX-License-Identifier: MIT OR Apache-2.0
"""One measurement: start a contender, send, let it finish, read both accounts, compare them.

Invariants
- Offered is what the device took, by the sender's counter in the kernel; the captured device's
  own counter must say the same.
- A measurement whose accounts contradict each other carries the reason in `problems`.
"""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass

from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import parse
from ringtap_lab.scenarios.contenders import READER_CPU, SEND, SENDER_CPU, Contender, Programs
from ringtap_lab.scenarios.figures import loss_percent, rate_mpps
from ringtap_lab.scenarios.tool import Tool, ToolError, leftovers

#: A sender may take so much longer than it was asked to.
SENDER_GRACE_SECONDS = 20


@dataclass(frozen=True)
class Traffic:
    """What is sent: frame size with FCS, rate as `ringtap send` reads it, for how long, how many
    flows by turns, and whether packets carry the time when they were sent."""

    size: int
    rate: str
    seconds: float
    flows: int = 1
    stamp: bool = False


@dataclass(frozen=True)
class Sent:
    """What was sent."""

    packets: int
    elapsed_ns: int


def send(programs: Programs, traffic: Traffic, cpu: int = SENDER_CPU) -> Sent:
    """Sends from a CPU, and gives what the device took."""
    command = programs.fill(
        SEND, size=traffic.size, rate=traffic.rate, seconds=traffic.seconds, flows=traffic.flows,
        sender_cpu=cpu,
    )  # fmt: skip
    command += " --stamp" * traffic.stamp
    done = subprocess.run(
        shlex.split(command),
        capture_output=True,
        text=True,
        check=False,
        timeout=traffic.seconds + SENDER_GRACE_SECONDS,
    )
    if done.returncode != 0:
        raise ToolError(f"{command}: exit code {done.returncode}: {done.stderr.strip()[-600:]}")
    return Sent(*parse.sender(done.stdout))


def busy_ticks(cpu: int) -> tuple[int, int]:
    """Ticks that a CPU was busy, and that the hypervisor took, since boot."""
    with open("/proc/stat", encoding="ascii") as stat:
        for line in stat:
            if line.startswith(f"cpu{cpu} "):
                fields = [int(one) for one in line.split()[1:]]
                return sum(fields[:3]) + sum(fields[5:8]), fields[7]
    raise ToolError(f"/proc/stat knows no CPU {cpu}")


def measure(programs: Programs, contender: Contender, traffic: Traffic) -> dict:
    """One measurement as a row of figures."""
    command = programs.fill(contender.command)
    with Tool(command, contender.stdin_ends_it) as tool:
        tool.wait_ready(contender.ready, contender.attached)
        # Attached is not yet ready: filters and tables of flows come after.
        tool.wait_idle(0.1)
        received, (busy, stolen) = sandbox.counter("rx_packets"), busy_ticks(READER_CPU)
        ran, used_ns = tool.cpu_ticks(), tool.cpu_ns()
        sent = send(programs, traffic)
        busy_after, stolen_after = busy_ticks(READER_CPU)
        ran, used_ns = tool.cpu_ticks() - ran, tool.cpu_ns() - used_ns
        tool.wait_idle(contender.quiet_seconds)
        received = sandbox.counter("rx_packets") - received
        text = tool.end()
    report = contender.parse(text)
    problems = contradictions(report, sent.packets, received)
    problems += [f"left behind: {one}" for one in leftovers()]
    return {
        "offered": sent.packets,
        "delivered": report.delivered,
        "shunted": report.shunted,
        "lost": sent.packets - report.shunted - report.delivered,
        "loss_percent": loss_percent(sent.packets - report.shunted, report.delivered),
        "elapsed_ns": sent.elapsed_ns,
        "offered_mpps": rate_mpps(sent.packets, sent.elapsed_ns),
        "delivered_mpps": rate_mpps(report.delivered, sent.elapsed_ns),
        "cpu_percent": 100 * used_ns / sent.elapsed_ns,
        # The reader's core beside the reader: other programs, and the hypervisor.
        "disturbed_ms": max(0, busy_after - busy - ran) * 10,
        "stolen_ms": (stolen_after - stolen) * 10,
        "problems": problems,
        "output": text,
    }


def contradictions(report: parse.Report, offered: int, received: int) -> list[str]:
    """What the accounts of sender, device and contender do not agree on."""
    found = []
    if received != offered:
        found.append(f"the device received {received} packets, {offered} were sent")
    if report.delivered > offered:
        found.append(f"delivered {report.delivered} of {offered}")
    elif report.delivered + report.shunted + report.lost != offered:
        missing = offered - report.shunted - report.delivered
        found.append(f"it says that it lost {report.lost} packets, but {missing} are missing")
    if report.offered is not None and report.offered != offered:
        found.append(f"it says that it was offered {report.offered} packets, not {offered}")
    if report.balanced is False:
        found.append("its counters do not balance")
    return found
