# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs of scenarios that are not batteries: how each starts, when it is ready, how its result is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import parse

#: Kernel side of the sender and of the capture on one core, readers on the other.
SENDER_CPU, READER_CPU = 0, 1
#: Every contender gets the same memory for packets that wait.
RING_MIB = 64


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


TASKSET = "taskset -c {reader_cpu} "
TAP_EXCLUSIVE = Contender(
    "tap exclusive",
    "{ringtap} count --quiet --json --cpu reader={reader_cpu},capture={reader_cpu} -i 'tap:{dev}?exclusive&pool={ring_mib}MiB'",
    parse.ringtap, "xdp", note="packets end here",
)  # fmt: skip

SEND = (
    "taskset -c {sender_cpu} {ringtap} send -i {sender} --size {size} --rate {rate} "
    "--duration {seconds} --flows {flows} --method live --quiet --json"
)


@dataclass(frozen=True)
class Programs:
    """Where our own programs are."""

    ringtap: Path

    def fill(self, command: str, **more: object) -> str:
        """A command line with its places filled in."""
        more = {"flows": 1, "sender_cpu": SENDER_CPU, **more}
        return command.format(
            ringtap=self.ringtap, dev=sandbox.CAPTURED, sender=sandbox.SENDER,
            scratch=sandbox.SCRATCH, reader_cpu=READER_CPU, ring_mib=RING_MIB, ring_kib=RING_MIB * 1024, **more,
        )  # fmt: skip
