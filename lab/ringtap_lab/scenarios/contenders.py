# SPDX-License-Identifier: MIT OR Apache-2.0
"""The compared programs as data: how each starts, when it is ready, how its result is read.

Another program or another way to start one is another entry here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import parse

#: Kernel side of the sender and of the capture on one core, readers on the other.
SENDER_CPU, READER_CPU = 0, 1
#: Every contender gets the same memory for packets that wait.
RING_MIB = 64
#: Where every reader has a ring of its own, up to 64 of them.
CROWD_RING_MIB = 16


@dataclass(frozen=True)
class Contender:
    """One way to capture."""

    name: str
    #: Command line; `{...}` is filled in by `Programs.fill`.
    command: str
    parse: Callable[[str], parse.Report]
    #: What shows that it captures: `xdp`, `ring` or `nothing`, and a line in its output.
    attached: str
    ready: str | None = None
    #: It has read all once it did nothing for so long: longer than its block time-out.
    quiet_seconds: float = 0.3
    stdin_ends_it: bool = False
    #: What a reader of the table must know.
    note: str = ""


_OURS = "--quiet --json --cpu reader={reader_cpu},capture={reader_cpu}"
_COUNT = "{ringtap} count " + _OURS + " -i "
TASKSET = "taskset -c {reader_cpu} "
_TCPDUMP = TASKSET + "tcpdump -Z root -n -i {dev} -B {ring_kib} -w /dev/null"

FLOOR = Contender(
    "XDP_DROP floor", TASKSET + "{floor} {dev} -", parse.floor, "xdp", "ready",
    quiet_seconds=0.1, stdin_ends_it=True, note="drops every packet: nothing can be faster",
)  # fmt: skip
TAP_EXCLUSIVE = Contender(
    "tap exclusive", _COUNT + "'tap:{dev}?exclusive&pool={ring_mib}MiB'", parse.ringtap, "xdp",
    note="packets end here",
)  # fmt: skip
TAP_PASS = Contender(
    "tap pass", _COUNT + "'tap:{dev}?pool={ring_mib}MiB'", parse.ringtap, "xdp",
    note="packets go on into the host's network stack, as with all below",
)  # fmt: skip
PACKET = Contender(
    "packet", _COUNT + "'packet:{dev}?pool={ring_mib}MiB'", parse.ringtap, "ring",
)  # fmt: skip
TCPDUMP = Contender(
    "tcpdump", _TCPDUMP, parse.tcpdump, "ring", "listening on", quiet_seconds=1.2,
    note="-w /dev/null",
)  # fmt: skip

IDLE = [TAP_PASS, PACKET, TCPDUMP]

SEND = (
    "taskset -c {sender_cpu} {ringtap} send -i {sender} --size {size} --rate {rate} "
    "--duration {seconds} --flows {flows} --method live --quiet --json"
)


@dataclass(frozen=True)
class Programs:
    """Where our own programs are."""

    ringtap: Path
    floor: Path
    pool_bench: Path
    sim_bench: Path
    pcap_latency: Path
    packet_reader: Path
    #: What `ringtap exec` puts in place of libpcap.
    library: Path = Path("libringtap_pcap.so")
    #: A Python with our package and those that it is compared with; `scripts/python-package bench` makes it.
    python: Path = Path("/nonexistent")

    @classmethod
    def only(cls, ringtap: Path) -> Programs:
        """The binary; what runs none of the others needs no more."""
        none = Path("/nonexistent")
        return cls(ringtap, none, none, none, none, none)

    def fill(self, command: str, **more: object) -> str:
        """A command line with its places filled in; without a filter, with the word for one."""
        more = {"filter": "FILTER", "flows": 1, "sender_cpu": SENDER_CPU, "port": "PORT",
                "file": "FILE", "ring_bytes": RING_MIB << 20, **more}  # fmt: skip
        return command.format(
            ringtap=self.ringtap, floor=self.floor, pcap_latency=self.pcap_latency,
            packet_reader=self.packet_reader, python=self.python, crowd_ring_mib=CROWD_RING_MIB,
            dev=sandbox.CAPTURED, sender=sandbox.SENDER, scratch=sandbox.SCRATCH,
            reader_cpu=READER_CPU,
            ring_mib=RING_MIB, ring_kib=RING_MIB * 1024, **more,
        )  # fmt: skip

    def missing(self, contender: Contender) -> str | None:
        """The program that a contender needs and this machine has not."""
        words = self.fill(contender.command).split()
        program = words[3] if words[0] == "taskset" else words[0]
        return None if shutil.which(program) else program
