# SPDX-License-Identifier: MIT OR Apache-2.0
"""Readers of a hub, each a process of its own, for scenarios that are not on the lab's own loop yet.

Invariants
- Offered is what the device took, by the sender's counter in the kernel; no reader has a say.
- A measurement is lossless only if every single reader got every packet that it wanted.
- Readers that got the same packets must have read the same headers.
"""

from __future__ import annotations

import re
from contextlib import ExitStack

from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import parse
from ringtap_lab.scenarios.contenders import RING_MIB, TASKSET, Contender
from ringtap_lab.scenarios.figures import rate_mpps
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import Tool, leftovers, wait_all_idle
from ringtap_lab.scenarios.trial import Traffic, contradictions, send

HUB_COMMAND = (
    TASKSET + "{ringtap} hub -i 'tap:{dev}?exclusive&direction=in&pool={ring_mib}MiB' -g all "
    "--socket {scratch}/hub.sock"
)
HUB = Contender(
    "ringtap hub",
    TASKSET + "{ringtap} count --quiet --json --work headers -i 'hub:all?socket={scratch}/hub.sock'",
    parse.ringtap, "pool", note=f"exclusive tap: packets end here; one pool of {RING_MIB} MiB for all readers",
)  # fmt: skip


def subscription(run: Run, stack: ExitStack, readers: int) -> list[Tool]:
    """Starts a hub and its readers; gives the hub first."""
    hub = stack.enter_context(Tool(run.programs.fill(HUB_COMMAND)))
    hub.wait_ready("ringtap: hub of", "xdp")
    tools = [stack.enter_context(Tool(run.programs.fill(HUB.command))) for _ in range(readers)]
    for reader in tools:
        reader.wait_ready(HUB.ready, HUB.attached)
    # Starting is over when nobody has anything more to do.
    wait_all_idle(tools, 0.1)
    return [hub, *tools]


def leave(tools: list[Tool]) -> list[str]:
    """Ends all, the hub last; gives what each reader wrote."""
    for reader in tools[1:]:
        reader.ask_to_end()
    texts = [reader.end() for reader in tools[1:]]
    tools[0].end()
    return texts


def measure(run: Run, traffic: Traffic) -> dict:
    """One measurement of one reader as a row of figures."""
    with ExitStack() as stack:
        tools = subscription(run, stack, 1)
        received = sandbox.counter("rx_packets")
        sent = send(run.programs, traffic)
        # The hub answers a reader a second even when nothing is left to be read.
        wait_all_idle(tools[1:], HUB.quiet_seconds)
        received = sandbox.counter("rx_packets") - received
        (text,) = leave(tools)
    report = parse.ringtap(text)
    problems = faults([text], sent.packets, received) + [f"left behind: {one}" for one in leftovers()]
    return {
        "offered": sent.packets, "delivered_least": report.delivered, "lost": report.lost,
        "elapsed_ns": sent.elapsed_ns, "offered_mpps": rate_mpps(sent.packets, sent.elapsed_ns),
        "delivered_mpps": rate_mpps(report.delivered, sent.elapsed_ns), "problems": problems, "output": text,
    }  # fmt: skip


def faults(texts: list[str], sent: int, received: int) -> list[str]:
    """What the accounts of sender, device and all readers do not agree on."""
    found: list[str] = []
    sums: dict[int, set[int]] = {}
    for number, text in enumerate(texts, 1):
        report = parse.ringtap(text)
        found += [f"reader {number} of {len(texts)}: {fault}" for fault in contradictions(report, sent, received)]
        sums.setdefault(report.delivered, set()).add(header_sum(text))
    for delivered, different in sums.items():
        if len(different) > 1 or (delivered > 0 and 0 in different):
            found.append(f"headers of the same {delivered} packets have the sums {different}")
    return found


def header_sum(text: str) -> int:
    """`headers sum N`, as a reader says that touched every header."""
    found = re.findall(r"headers sum (\d+)", text)
    if not found:
        raise parse.ReportError(f"no sum over the headers: {text.strip()[-300:]!r}")
    return int(found[-1])
