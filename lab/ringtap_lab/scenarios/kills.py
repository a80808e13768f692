# SPDX-License-Identifier: MIT OR Apache-2.0
"""Readers of a hub are killed at full rate, one after the other: what do the others lose?

Exit status: 0 if every check held, 1 if one failed, 2 if nothing could be run, 130 if interrupted.

Invariants
- The sender's counter in the kernel says what was sent; no reader has a say.
- A victim is killed while packets come to it: after it mapped the pool, before the sender ends.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from ringtap_lab import root
from ringtap_lab.formatters.tables import grid
from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import contenders, crowd, parse
from ringtap_lab.scenarios.figures import rate_mpps
from ringtap_lab.scenarios.preflight import unable
from ringtap_lab.scenarios.tool import Tool, ToolError, leftovers, wait_all_idle
from ringtap_lab.scenarios.trial import SENDER_GRACE_SECONDS

FRAME_BYTES = 64
OTHERS = 3
#: What comes while the one core of all readers starts a process must wait somewhere.
POOL_MIB = 2048
#: How long a victim reads before it is killed.
LIFE_SECONDS = 0.02


def belongings(pid: int) -> tuple[int, int]:
    """Descriptors and mappings of a process."""
    process = Path(f"/proc/{pid}")
    maps = (process / "maps").read_text().splitlines()
    return len(list((process / "fd").iterdir())), len(maps)


def kill_one(programs: contenders.Programs) -> None:
    """One reader comes, reads, and is killed."""
    reader = crowd.HUB
    with Tool(programs.fill(reader.command, filter="")) as victim:
        victim.wait_ready(reader.ready, reader.attached)
        time.sleep(LIFE_SECONDS)
        victim.must_live()
        os.kill(victim.process.pid, signal.SIGKILL)


def measure(programs: contenders.Programs, kills: int) -> int:
    """The whole run, inside the sandbox; gives the exit status."""
    sandbox.make_veth()
    hub_command = programs.fill(crowd.HUB_COMMAND.replace("{ring_mib}", str(POOL_MIB)))
    print(f"kills: {kills} readers are killed at full rate beside {OTHERS} others; {hub_command}",
          flush=True)  # fmt: skip
    reader = crowd.HUB
    # The sender ends when it is told to.
    send = programs.fill(contenders.SEND, size=FRAME_BYTES, rate="max", seconds=3600)
    with ExitStack() as stack:
        hub = stack.enter_context(Tool(hub_command))
        hub.wait_ready("ringtap: hub of", "xdp")
        tools = [
            stack.enter_context(Tool(programs.fill(reader.command, filter="")))
            for _ in range(OTHERS)
        ]
        for tool in tools:
            tool.wait_ready(reader.ready, reader.attached)
        wait_all_idle(tools, 0.1)
        before = belongings(hub.process.pid)
        sender = subprocess.Popen(
            shlex.split(send), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            for _ in range(kills):
                kill_one(programs)
                if sender.poll() is not None:
                    raise ToolError(f"the sender ended: {sender.communicate()[1]}")
            sender.send_signal(signal.SIGINT)
            said, _errors = sender.communicate(timeout=SENDER_GRACE_SECONDS)
        finally:
            sender.kill()
        wait_all_idle(tools, reader.quiet_seconds)
        after = belongings(hub.process.pid)
        for tool in tools:
            tool.ask_to_end()
        reports = [reader.parse(tool.end()) for tool in tools]
        hub.end()
    sent, elapsed_ns = parse.sender(said)
    return show(sent, elapsed_ns, reports, before, after)


def show(
    sent: int,
    elapsed_ns: int,
    reports: list[parse.Report],
    before: tuple[int, int],
    after: tuple[int, int],
) -> int:
    """Prints the one table; gives the exit status."""
    lost = [report.lost for report in reports]
    delivered = [report.delivered for report in reports]
    left = leftovers()
    leaks = [now for then, now in zip(before, after) if now > then]
    checks = [
        ("sent", f"{sent:,} at {rate_mpps(sent, elapsed_ns):.2f} Mpps", sent > 0),
        ("others' losses: 0", ", ".join(map(str, lost)), not any(lost)),
        ("others got all", ", ".join(f"{one:,}" for one in delivered), set(delivered) == {sent}),
        ("counters balanced", "", all(report.balanced for report in reports)),
        ("the hub's descriptors and mappings", f"{before}, then {after}", leaks == []),
        ("left behind: nothing", ", ".join(left) or "nothing", not left),
    ]
    rows = [[name, found, "held" if held else "FAILED"] for name, found, held in checks]
    print(grid([["", "measured", "check"], *rows]), flush=True)
    return 0 if all(held for _, _, held in checks) else 1


def main(words: list[str]) -> int:
    """Runs what the command line asks for; gives the exit status."""
    parser = argparse.ArgumentParser(prog="ringtap-lab kills", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="how many (100)")
    parser.add_argument("--ringtap", type=Path, default=root.ringtap())
    asked = parser.parse_args(words)
    ringtap = asked.ringtap.resolve()
    if why := unable("ringtap-lab kills", "kills", [ringtap]):
        print(f"kills: {why}", file=sys.stderr)
        return 2
    programs = contenders.Programs(ringtap)
    try:
        return sandbox.run_inside(lambda: measure(programs, asked.kills))
    except (ToolError, parse.ReportError, OSError) as error:
        print(f"kills: {error}", file=sys.stderr)
        return 1
