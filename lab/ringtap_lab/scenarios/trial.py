# SPDX-License-Identifier: MIT OR Apache-2.0
"""Traffic of scenarios that are not batteries, and what the accounts of a measurement must agree on.

Invariants
- Offered is what the device took, by the sender's counter in the kernel; no contender has a say.
"""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass

from ringtap_lab.scenarios import parse
from ringtap_lab.scenarios.contenders import SEND, SENDER_CPU, Programs
from ringtap_lab.scenarios.tool import ToolError

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
