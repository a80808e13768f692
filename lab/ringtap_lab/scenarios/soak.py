# SPDX-License-Identifier: MIT OR Apache-2.0
"""A long run at full rate: does every packet stay accounted for, and memory constant? See --help.

Exit status: 0 if every check held, 1 if one failed, 2 if nothing could be run, 130 if interrupted.

Invariants
- Packets that are lost and counted are no failure; a packet that nobody accounts for is.
- Memory is compared after the warm-up only: until then pages of the pool are touched once.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from ringtap_lab import root
from ringtap_lab.formatters.tables import grid
from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import contenders, parse
from ringtap_lab.scenarios.figures import loss_percent, rate_mpps
from ringtap_lab.scenarios.preflight import unable
from ringtap_lab.scenarios.tool import Tool, ToolError, leftovers
from ringtap_lab.scenarios.trial import SENDER_GRACE_SECONDS, contradictions

READER = contenders.TAP_EXCLUSIVE
FRAME_BYTES = 64
#: The reader's memory may grow by so much after the warm-up, in the whole run.
MAX_GROWTH_KIB = 1024
#: Share of the run that is warm-up.
WARM_UP = 0.1
MIN_SECONDS, MAX_SECONDS = 5, 86_400


@dataclass
class Memory:
    """Resident memory of a process over time."""

    #: Seconds since the beginning, and KiB.
    samples: list[tuple[float, int]] = field(default_factory=list)

    def sample(self, pid: int, at_seconds: float) -> None:
        """Notes the memory of now."""
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                self.samples.append((at_seconds, int(line.split()[1])))
                return
        raise ToolError(f"process {pid} tells nothing of its memory")

    def after(self, seconds: float) -> list[int]:
        """The samples since then, in KiB."""
        return [kib for at, kib in self.samples if at >= seconds]

    def growth_kib(self, warm_up_seconds: float) -> int:
        """How far memory ever rose above what it was right after the warm-up."""
        settled = self.after(warm_up_seconds)
        if len(settled) < 2:
            raise ToolError("too few samples of memory: the run was too short")
        return max(settled) - settled[0]


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    seconds: float
    sent: int
    elapsed_ns: int
    received: int
    report: parse.Report
    memory: Memory
    left: list[str]

    def checks(self) -> list[tuple[str, str, bool]]:
        """What was wanted, what was found, whether it held."""
        report = self.report
        unexplained = self.sent - report.delivered - report.lost
        warm_up = WARM_UP * self.seconds
        growth = self.memory.growth_kib(warm_up)
        contradicted = contradictions(report, self.sent, self.received)
        return [
            ("counters balanced", "yes" if report.balanced else "no", report.balanced is True),
            ("packets unexplained: 0", str(unexplained), unexplained == 0),
            ("accounts contradict: 0", "; ".join(contradicted) or "0", not contradicted),
            ("packets sent: more than 0", f"{self.sent:,}", self.sent > 0),
            (
                f"memory grew by at most {MAX_GROWTH_KIB} KiB after {warm_up:g} s",
                f"{growth} KiB in {len(self.memory.after(warm_up))} samples",
                growth <= MAX_GROWTH_KIB,
            ),
            ("left behind: nothing", ", ".join(self.left) or "nothing", not self.left),
        ]

    def figures(self) -> list[tuple[str, str]]:
        """What a reader wants to know beside the checks."""
        kib = [one for _, one in self.memory.samples]
        return [
            ("seconds", f"{self.elapsed_ns / 1e9:.1f}"),
            ("sent", f"{self.sent:,}"),
            ("delivered", f"{self.report.delivered:,}"),
            ("lost and counted", f"{self.report.lost:,}"),
            ("lost %", f"{loss_percent(self.sent, self.report.delivered):.4f}"),
            ("offered Mpps", f"{rate_mpps(self.sent, self.elapsed_ns):.3f}"),
            ("memory, first / last / most KiB", f"{kib[0]:,} / {kib[-1]:,} / {max(kib):,}"),
        ]


def run(programs: contenders.Programs, seconds: float) -> Outcome:
    """Sends at full rate to one reader and watches its memory."""
    send = programs.fill(contenders.SEND, size=FRAME_BYTES, rate="max", seconds=seconds)
    memory, step = Memory(), min(5.0, seconds / 20)
    with Tool(programs.fill(READER.command)) as reader:
        reader.wait_ready(READER.ready, READER.attached)
        received = sandbox.counter("rx_packets")
        sender = subprocess.Popen(
            shlex.split(send), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            begun = time.monotonic()
            while sender.poll() is None:
                at = time.monotonic() - begun
                if at > seconds + SENDER_GRACE_SECONDS:
                    raise ToolError(f"{send}: still there after {at:.0f} s")
                memory.sample(reader.process.pid, at)
                time.sleep(step)
            said, errors = sender.communicate()
        finally:
            sender.kill()
        if sender.returncode != 0:
            raise ToolError(f"{send}: exit code {sender.returncode}: {errors.strip()[-600:]}")
        reader.wait_idle(READER.quiet_seconds)
        received = sandbox.counter("rx_packets") - received
        text = reader.end()
    sent, elapsed_ns = parse.sender(said)
    return Outcome(
        seconds, sent, elapsed_ns, received, READER.parse(text), memory, leftovers()
    )


def show(outcome: Outcome) -> int:
    """Prints the one table; gives the exit status."""
    checks = outcome.checks()
    rows = [[name, figure, ""] for name, figure in outcome.figures()]
    rows += [[name, found, "held" if held else "FAILED"] for name, found, held in checks]
    print(grid([["", "measured", "check"], *rows]), flush=True)
    return 0 if all(held for _, _, held in checks) else 1


def measure(programs: contenders.Programs, seconds: float) -> int:
    """The whole run, inside the sandbox; gives the exit status."""
    sandbox.make_veth()
    print(f"soak: {FRAME_BYTES}-byte packets at full rate for {seconds:g} s; reader:"
          f" {programs.fill(READER.command)}", flush=True)  # fmt: skip
    try:
        return show(run(programs, seconds))
    except (ToolError, parse.ReportError, OSError) as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1


def refuse(text: str) -> int:
    """Says why nothing is run."""
    print(f"soak: {text}", file=sys.stderr)
    return 2


def main(words: list[str]) -> int:
    """Runs what the command line asks for; gives the exit status."""
    parser = argparse.ArgumentParser(prog="ringtap-lab soak", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="how long (600)")
    parser.add_argument("--ringtap", type=Path, default=root.ringtap())
    asked = parser.parse_args(words)
    if not MIN_SECONDS <= asked.seconds <= MAX_SECONDS:
        return refuse(f"--seconds: from {MIN_SECONDS} to {MAX_SECONDS}")
    ringtap = asked.ringtap.resolve()
    if why := unable("ringtap-lab soak", "soak", [ringtap]):
        return refuse(why)
    programs = contenders.Programs(ringtap)
    return sandbox.run_inside(lambda: measure(programs, asked.seconds))
