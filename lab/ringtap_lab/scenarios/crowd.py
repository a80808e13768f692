# SPDX-License-Identifier: MIT OR Apache-2.0
"""Many readers of the same packets, each a process of its own: definition and one measurement.

Invariants
- Offered is what the device took, by the sender's counter in the kernel; no reader has a say.
- A measurement is lossless only if every single reader got every packet that it wanted.
- Readers that got the same packets must have read the same headers.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, replace

from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import parse
from ringtap_lab.scenarios.contenders import CROWD_RING_MIB, RING_MIB, TASKSET, TCPDUMP, Contender, Programs
from ringtap_lab.scenarios.figures import rate_mpps
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import Tool, leftovers, wait_all_idle
from ringtap_lab.scenarios.trial import Traffic, contradictions, send


@dataclass(frozen=True)
class Crowd:
    """Readers of one kind; the first of them may need a hub."""

    reader: Contender
    hub: str | None = None
    #: Whether the reader tells the sum over all headers.
    sums: bool = True

    @property
    def name(self) -> str:
        """Its name in tables."""
        return self.reader.name


HUB_COMMAND = (
    TASKSET + "{ringtap} hub -i 'tap:{dev}?exclusive&direction=in&pool={ring_mib}MiB' -g all "
    "--socket {scratch}/hub.sock"
)
HUB_READER = (
    TASKSET + "{ringtap} count --quiet --json --work headers -i 'hub:all?socket={scratch}/hub.sock'"
    " --filter '{filter}'"
)

HUB = Crowd(
    Contender(
        "ringtap hub", HUB_READER, parse.ringtap, "pool",
        note=f"exclusive tap: packets end here; one pool of {RING_MIB} MiB for all readers",
    ),
    HUB_COMMAND,
)  # fmt: skip
PACKET = Crowd(
    Contender(
        "AF_PACKET", TASKSET + "{packet_reader} {dev} {crowd_ring_mib} '{filter}'",
        parse.libpcap_reader, "ring", "ready",
        note=f"TPACKET_V3, read in place by a C program; {CROWD_RING_MIB} MiB for each reader",
    ),
)  # fmt: skip
TCPDUMPS = Crowd(
    replace(TCPDUMP, name="tcpdumps", command=TCPDUMP.command + " '{filter}'"), sums=False
)


@dataclass(frozen=True)
class Wanted:
    """What one reader asks for, and whether the traffic is that."""

    filter: str = ""
    matches: bool = True
    #: Takes one packet of so many, by turns.
    part: int = 1


def subscription(stack: ExitStack, programs: Programs, crowd: Crowd, wanted: list[Wanted]) -> list[Tool]:
    """Starts the readers, and their hub before them; gives the hub, if there is one, first."""
    tools = []
    if crowd.hub:
        hub = stack.enter_context(Tool(programs.fill(crowd.hub)))
        hub.wait_ready("ringtap: hub of", "xdp")
        tools.append(hub)
    readers = [
        stack.enter_context(Tool(programs.fill(crowd.reader.command, filter=one.filter)))
        for one in wanted
    ]
    for reader in readers:
        reader.wait_ready(crowd.reader.ready, crowd.reader.attached)
    # Starting is over when nobody has anything more to do.
    wait_all_idle(readers, 0.1)
    return tools + readers


def readers_of(tools: list[Tool], crowd: Crowd) -> list[Tool]:
    """All but the hub, which answers a reader a second even when nothing is left to be read."""
    return tools[1:] if crowd.hub else tools


def leave(tools: list[Tool], crowd: Crowd) -> list[str]:
    """Ends all, the hub last; gives what each reader wrote."""
    readers = readers_of(tools, crowd)
    for reader in readers:
        reader.ask_to_end()
    texts = [reader.end() for reader in readers]
    if crowd.hub:
        tools[0].end()
    return texts


def measure(run: Run, crowd: Crowd, wanted: list[Wanted], traffic: Traffic) -> dict:
    """One measurement as a row of figures."""
    with ExitStack() as stack:
        tools = subscription(stack, run.programs, crowd, wanted)
        readers = readers_of(tools, crowd)
        received, used_ns = sandbox.counter("rx_packets"), sum(one.cpu_ns() for one in readers)
        sent = send(run.programs, traffic)
        wait_all_idle(readers, crowd.reader.quiet_seconds)
        used_ns = sum(one.cpu_ns() for one in readers) - used_ns
        received = sandbox.counter("rx_packets") - received
        texts = leave(tools, crowd)
    problems = faults(crowd, wanted, texts, sent.packets, received)
    problems += [f"left behind: {one}" for one in leftovers()]
    reports = [crowd.reader.parse(text) for text in texts]
    least = min(
        (report.delivered * one.part for report, one in zip(reports, wanted) if one.matches),
        default=sent.packets,
    )
    return {
        "offered": sent.packets,
        "delivered_least": least,
        "lost": sum(report.lost for report in reports),
        "elapsed_ns": sent.elapsed_ns,
        # Processor time of all readers: tells more than the rate where the sender had no more.
        "reader_ns": used_ns / sent.packets,
        "offered_mpps": rate_mpps(sent.packets, sent.elapsed_ns),
        "delivered_mpps": rate_mpps(least, sent.elapsed_ns),
        "problems": problems,
        "output": "\n".join(texts),
    }


def faults(
    crowd: Crowd, wanted: list[Wanted], texts: list[str], sent: int, received: int
) -> list[str]:
    """What the accounts of sender, device and all readers do not agree on."""
    found: list[str] = []
    sums: dict[int, set[int]] = {}
    if received != sent:
        found.append(f"the device received {received} packets, {sent} were sent")
    for number, (text, one) in enumerate(zip(texts, wanted), 1):
        report = crowd.reader.parse(text)
        reader = f"reader {number} of {len(wanted)}: "
        if report.offered is not None and report.offered != sent:
            found.append(f"{reader}it says that it was offered {report.offered} packets, not {sent}")
        if not one.matches:
            # What it lost of packets that no filter classified for it is only known to be at most so much.
            report = replace(report, lost=0)
        share = _share(one, sent, report.delivered + report.lost)
        own = contradictions(replace(report, offered=None), share, share)
        found += [reader + fault for fault in own]
        if crowd.sums:
            sums.setdefault(report.delivered, set()).add(header_sum(text))
    for delivered, different in sums.items():
        if len(different) > 1 or (delivered > 0 and 0 in different):
            found.append(f"headers of the same {delivered} packets have the sums {different}")
    return found


def _share(one: Wanted, sent: int, told: int) -> int:
    """Packets that a reader ought to see; where turns do not come out even, one more may be."""
    if not one.matches:
        return 0
    least = sent // one.part
    return least + 1 if sent % one.part and told == least + 1 else least


def header_sum(text: str) -> int:
    """`headers sum N`, as a reader says that touched every header."""
    found = re.findall(r"headers sum (\d+)", text)
    if not found:
        raise parse.ReportError(f"no sum over the headers: {text.strip()[-300:]!r}")
    return int(found[-1])
