# SPDX-License-Identifier: MIT OR Apache-2.0
"""One daemon: a program that the agent starts, watches and ends.

Invariants
- Each daemon leads a process group of its own, which is killed as a whole.
- Of its output, the first and the last bytes are kept, never more than `KEPT_BYTES` each.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

from ringtap_lab.agent.processes import die_with_parent, tasks

KEPT_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
#: The end of the output is read within this after the end of the process.
STREAMS_S = 1.0
#: A mapping of a pool or a control region.
SHARED = re.compile(r"memfd:|bpf")
#: What `/proc/PID/clear_refs` takes to begin anew with the highest resident memory.
FORGET_PEAK = "5"


class DaemonError(Exception):
    """A daemon did not do what was asked."""


class Output:
    """The beginning and the end of a stream."""

    def __init__(self) -> None:
        self.head = b""
        self.tail = b""
        self.total = 0

    def add(self, piece: bytes) -> None:
        """Takes more output; forgets the middle."""
        self.total += len(piece)
        room = KEPT_BYTES - len(self.head)
        self.head += piece[:room] if room > 0 else b""
        rest = piece[room:] if room > 0 else piece
        self.tail = (self.tail + rest)[-KEPT_BYTES:]

    def text(self) -> str:
        """What is kept; says where bytes are missing."""
        missing = self.total - len(self.head) - len(self.tail)
        middle = f"\n[{missing} bytes left out]\n".encode() if missing else b""
        return (self.head + middle + self.tail).decode(errors="replace")


class Daemon:
    """A running program."""

    def __init__(self, command: str, stdin_ends_it: bool, folder: Path) -> None:
        self.command = command
        self._stdin_ends_it = stdin_ends_it
        self._asked = False
        self._outputs = (Output(), Output())
        self.process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.PIPE if stdin_ends_it else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=folder,
            preexec_fn=_prepare,
        )
        self._open: dict[int, Output] = {}
        self._closed = asyncio.Event()
        for stream, output in zip((self.process.stdout, self.process.stderr), self._outputs, strict=True):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._open[stream.fileno()] = output
            asyncio.get_running_loop().add_reader(stream.fileno(), self._read, stream.fileno())

    def _read(self, descriptor: int) -> None:
        try:
            piece = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        self._open[descriptor].add(piece)
        if not piece:
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        del self._open[descriptor]
        if not self._open:
            self._closed.set()

    def text(self) -> str:
        """Both streams, as far as they are kept."""
        return "\n".join(one.text() for one in self._outputs)

    def output_bytes(self) -> int:
        """All that it wrote."""
        return sum(one.total for one in self._outputs)

    def fault(self, what: str) -> DaemonError:
        """An error with the end of the output, up to what it wrote last."""
        for descriptor in list(self._open):
            self._read(descriptor)
        words = " ".join(self.text()[-2000:].split())
        # What it prints must not command the terminal of the user.
        words = "".join(one if one.isprintable() else "?" for one in words)
        return DaemonError(f"{self.command}: {what}: {words[-600:]}")

    def must_live(self) -> None:
        """Raises DaemonError if it has ended by itself."""
        if self.process.poll() is not None and not self._asked:
            raise self.fault(f"ended with {self.process.returncode}")

    def has_mapped(self, what: str) -> bool:
        """Whether a process of its group has mapped a packet socket's ring, or a pool."""
        return any(what in text for text in self._files("maps"))

    def cpu_ns(self, thread: str = "") -> int:
        """Nanoseconds that its threads ran, as the scheduler counts; or only those with this name."""
        return sum(int(word) for word in self._of_tasks("schedstat", 0, thread))

    def memory_kib(self, kind: str, file: str = "smaps_rollup") -> int:
        """Memory of its processes, by a line of the kernel's: `Pss` counts for each its part of what several share."""
        return sum(int(line.split()[1]) for text in self._files(file) for line in text.splitlines()
                   if line.startswith(f"{kind}:"))  # fmt: skip

    def settle(self) -> int:
        """From here on, `VmHWM` of `status` is the highest memory since now; gives that of now, in KiB."""
        for process in self._processes():
            with contextlib.suppress(OSError):
                (process / "clear_refs").write_text(FORGET_PEAK)
        return self.memory_kib("VmRSS", "status")

    def mappings(self) -> int:
        """Shared memory that it has mapped: pools, control regions."""
        return sum(bool(SHARED.search(line)) for text in self._files("maps") for line in text.splitlines())

    def descriptors(self) -> int:
        """Descriptors that it has open."""
        return sum(len(list((process / "fd").iterdir())) for process in self._processes())

    def _processes(self) -> set[Path]:
        return {task.parent.parent for task in tasks(self.process.pid)}

    def _files(self, name: str) -> list[str]:
        """A file of each of its processes."""
        found = []
        for process in self._processes():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                found.append((process / name).read_text())
        return found

    def wants_to_run(self) -> bool:
        """Whether one of its threads runs or waits for a core."""
        return any(state in "RD" for state in self._of_tasks("stat", 0))

    def _of_tasks(self, file: str, field: int, thread: str = "") -> list[str]:
        found = []
        for task in tasks(self.process.pid):
            try:
                if thread and (task / "comm").read_text().strip() != thread:
                    continue
                text = (task / file).read_text()
            except OSError:
                continue  # it has ended meanwhile
            found.append(text.rpartition(")")[2].split()[field])
        return found

    def ask_to_end(self) -> None:
        """Asks it to end as a user does; only the first time."""
        if self._asked:
            return
        self.must_live()
        self._asked = True
        if self.process.stdin:
            self.process.stdin.close()
        else:
            self.process.send_signal(signal.SIGINT)

    async def ended(self, limit_s: float) -> int:
        """Waits until it has ended and its output is read; gives the exit status.

        Sleeps meanwhile: an agent that looked again and again would disturb what is measured."""
        try:
            await asyncio.wait_for(self._exit(), limit_s)
        except TimeoutError:
            if self.process.poll() is None:
                raise self.fault(f"still there after {limit_s:g} s") from None
        with contextlib.suppress(TimeoutError):
            # A child of it may hold the streams.
            await asyncio.wait_for(self._closed.wait(), STREAMS_S)
        return self.process.wait()

    async def _exit(self) -> None:
        if self.process.poll() is not None:
            return
        loop, exited = asyncio.get_running_loop(), asyncio.Event()
        descriptor = os.pidfd_open(self.process.pid)
        loop.add_reader(descriptor, exited.set)
        try:
            await exited.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def kill(self) -> None:
        """Kills its process group and closes its streams."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for descriptor in list(self._open):
            self._close(descriptor)
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        if self.process.stdin:
            self.process.stdin.close()


def _prepare() -> None:
    die_with_parent()
    # The agent ignores it, and a contender must not.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
