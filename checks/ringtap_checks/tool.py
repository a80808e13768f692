# SPDX-License-Identifier: MIT OR Apache-2.0
"""One running program: started, seen to be ready, seen to be done, ended, and gone.

Invariants
- Readiness is seen, never slept for: a line in the output, a ring in the process, an XDP program
  on the device.
- Each program leads a process group of its own, which is empty when `Tool` is left.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from ringtap_lab.manager import sandbox

READY_SECONDS = 15.0
END_SECONDS = 30.0
LOOK_SECONDS = 0.005
#: A program that runs no longer than this between two looks reads no packets: a look of a hub at its flows takes less.
IDLE_NS = 2_000_000
#: A program that runs for no more than this part of the time between two looks has caught up.
BUSY_PART = 0.2

_numbers = itertools.count()


class ToolError(Exception):
    """A program did not do what a measurement needs."""


class Tool:
    """A program under measurement; use it with `with`."""

    def __init__(self, command: str, stdin_ends_it: bool = False) -> None:
        self.command = command
        self.name = shlex.split(command)[0]
        self._stdin_ends_it = stdin_ends_it
        self._asked = False
        number = next(_numbers)
        self._files = [sandbox.SCRATCH / f"tool{number}.{kind}" for kind in ("out", "err")]

    def __enter__(self) -> Tool:
        out, err = (path.open("wb") for path in self._files)
        with out, err:
            stdin = subprocess.PIPE if self._stdin_ends_it else subprocess.DEVNULL
            self.process = subprocess.Popen(
                shlex.split(self.command),
                stdin=stdin,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()
        for path in self._files:
            path.unlink(missing_ok=True)

    def output(self) -> str:
        """All that it wrote so far, both streams."""
        return "\n".join(path.read_text(errors="replace") for path in self._files)

    def must_live(self) -> None:
        """Raises ToolError if it has ended by itself."""
        if self.process.poll() is not None:
            words = self.output().strip()[-600:]
            raise ToolError(f"{self.command}: ended with {self.process.returncode}: {words}")

    def wait_ready(self, line: str | None, attached: str) -> None:
        """Waits until it says `line` and its `attached` is there: `xdp`, `ring`, `pool` or
        `nothing`."""
        seen = {
            "xdp": xdp_attached,
            "ring": lambda: self._has_mapped("socket:["),
            "pool": lambda: self._has_mapped("bpf-map"),
            "nothing": lambda: True,
        }[attached]
        end = time.monotonic() + READY_SECONDS
        while not ((line is None or line in self.output()) and seen()):
            self.must_live()
            if time.monotonic() > end:
                words = self.output().strip()[-600:]
                raise ToolError(f"{self.command}: not ready after {READY_SECONDS} s: {words}")
            time.sleep(LOOK_SECONDS)

    def _has_mapped(self, what: str) -> bool:
        """Whether it has mapped a packet socket's ring, or a pool."""
        try:
            return what in Path(f"/proc/{self.process.pid}/maps").read_text()
        except OSError:
            return False

    def _tasks(self) -> Iterator[Path]:
        """All its threads, and those of processes that it started."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(process.name)) == self.process.pid:
                    yield from (process / "task").iterdir()
            except (ProcessLookupError, FileNotFoundError):
                pass  # it has ended meanwhile

    def cpu_ns(self) -> int:
        """Nanoseconds that all its threads ran, as the scheduler counts."""
        return sum(int((task / "schedstat").read_text().split()[0]) for task in self._tasks())

    def cpu_ticks(self) -> int:
        """utime + stime, in ticks."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def wants_to_run(self) -> bool:
        """Whether any of its threads runs or waits for a core."""
        tasks = self._tasks()
        states = ((task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks)
        return any(state in "RD" for state in states)

    def wait_idle(self, quiet_seconds: float, look_seconds: float = 0.05) -> float:
        """Waits until it has neither run nor wanted to for so long: then it has read all.

        Gives the seconds from now to the last look, one each `look_seconds`, at which it still read."""
        return wait_all_idle([self], quiet_seconds, look_seconds)

    def ask_to_end(self) -> None:
        """Asks it to end as a user does; only the first time."""
        self.must_live()
        if self._asked:
            return
        self._asked = True
        if self._stdin_ends_it:
            self.process.stdin.close()
        else:
            self.process.send_signal(signal.SIGINT)

    def end(self) -> str:
        """Ends it; gives its output. It must exit with 0."""
        if not self._asked:
            self.ask_to_end()
        try:
            status = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise ToolError(f"{self.command}: still there {END_SECONDS} s after Ctrl-C") from None
        if status != 0:
            raise ToolError(f"{self.command}: exit code {status}: {self.output().strip()[-600:]}")
        return self.output()


def wait_all_idle(tools: list[Tool], quiet_seconds: float, look_seconds: float = 0.05) -> float:
    """Waits until none of them has run or wanted to for so long: then all is read.

    Gives the seconds from now to the last look before which one ran for more than BUSY_PART of the time: a
    reader that has caught up still looks for packets."""
    looked = busy_until = start = time.monotonic()
    end = start + END_SECONDS
    last, since = [tool.cpu_ns() for tool in tools], start
    while time.monotonic() - since < quiet_seconds:
        time.sleep(min(look_seconds, quiet_seconds / 4))
        for tool in tools:
            tool.must_live()
        now = [tool.cpu_ns() for tool in tools]
        # Its own clock-driven line a second is no reading of packets.
        ran = any(after - before > IDLE_NS for after, before in zip(now, last))
        seconds, looked = time.monotonic() - looked, time.monotonic()
        if any(after - before > BUSY_PART * seconds * 1e9 for after, before in zip(now, last)):
            busy_until = looked
        if ran or any(tool.wants_to_run() for tool in tools):
            since = time.monotonic()
        last = now
        if time.monotonic() > end:
            raise ToolError(
                f"{tools[-1].command}: still busy {END_SECONDS} s after the last packet"
            )
    return busy_until - start


def xdp_attached(device: str = sandbox.CAPTURED) -> bool:
    """Whether an XDP program is on the device."""
    command = ["ip", "-j", "link", "show", device]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return "xdp" in json.loads(text)[0]


def leftovers() -> list[str]:
    """What a program left behind in the sandbox, in words."""
    found = []
    if xdp_attached():
        found.append("an XDP program on the device")
    sockets = Path("/proc/net/packet").read_text().splitlines()[1:]
    if sockets:
        found.append(f"{len(sockets)} packet sockets")
    filters = subprocess.run(
        ["tc", "qdisc", "show", "dev", sandbox.CAPTURED], capture_output=True, text=True, check=False
    ).stdout
    if "clsact" in filters:
        found.append("a clsact qdisc")
    return found
