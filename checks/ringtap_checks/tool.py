# SPDX-License-Identifier: MIT OR Apache-2.0
"""One running program: started, seen to be ready, seen to be done, ended, and gone.

Invariants
- Readiness is seen, never slept for: a line in the output, a mapped pool, an XDP program on
  the device.
- Each program leads a process group of its own, which is empty when `Tool` is left.
"""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from ringtap_lab.agent.counters import xdp_attached
from ringtap_lab.manager import sandbox

READY_SECONDS = 15.0
END_SECONDS = 30.0
LOOK_SECONDS = 0.005
#: A program that runs no longer than this between two looks reads no packets: a look of a hub at its flows takes less.
IDLE_NS = 2_000_000

_numbers = itertools.count()


class ToolError(Exception):
    """A program did not do what a measurement needs."""


class Tool:
    """A program under measurement; use it with `with`."""

    def __init__(self, command: str) -> None:
        self.command = command
        number = next(_numbers)
        self._files = [sandbox.SCRATCH / f"tool{number}.{kind}" for kind in ("out", "err")]

    def __enter__(self) -> Tool:
        out, err = (path.open("wb") for path in self._files)
        with out, err:
            self.process = subprocess.Popen(
                shlex.split(self.command),
                stdin=subprocess.DEVNULL,
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
        """Waits until it says `line` and its `attached` is there: `xdp`, `pool` or `nothing`."""
        seen = {
            "xdp": lambda: xdp_attached(sandbox.CAPTURED),
            "pool": self._has_pool,
            "nothing": lambda: True,
        }[attached]
        end = time.monotonic() + READY_SECONDS
        while not ((line is None or line in self.output()) and seen()):
            self.must_live()
            if time.monotonic() > end:
                words = self.output().strip()[-600:]
                raise ToolError(f"{self.command}: not ready after {READY_SECONDS} s: {words}")
            time.sleep(LOOK_SECONDS)

    def _has_pool(self) -> bool:
        """Whether it has mapped a pool."""
        try:
            return "bpf-map" in Path(f"/proc/{self.process.pid}/maps").read_text()
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

    def wants_to_run(self) -> bool:
        """Whether any of its threads runs or waits for a core."""
        tasks = self._tasks()
        states = ((task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks)
        return any(state in "RD" for state in states)

    def end(self) -> str:
        """Ends it as a user does; gives its output. It must exit with 0."""
        self.must_live()
        self.process.send_signal(signal.SIGINT)
        try:
            status = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise ToolError(f"{self.command}: still there {END_SECONDS} s after Ctrl-C") from None
        if status != 0:
            raise ToolError(f"{self.command}: exit code {status}: {self.output().strip()[-600:]}")
        return self.output()


def wait_all_idle(tools: list[Tool], quiet_seconds: float) -> None:
    """Waits until none of them has run or wanted to for so long: then all is read."""
    end = time.monotonic() + END_SECONDS
    last, since = [tool.cpu_ns() for tool in tools], time.monotonic()
    while time.monotonic() - since < quiet_seconds:
        time.sleep(min(0.05, quiet_seconds / 4))
        for tool in tools:
            tool.must_live()
        now = [tool.cpu_ns() for tool in tools]
        # To print a line each second takes less.
        ran = any(after - before > IDLE_NS for after, before in zip(now, last))
        if ran or any(tool.wants_to_run() for tool in tools):
            since = time.monotonic()
        last = now
        if time.monotonic() > end:
            raise ToolError(
                f"{tools[-1].command}: still busy {END_SECONDS} s after the last packet"
            )
