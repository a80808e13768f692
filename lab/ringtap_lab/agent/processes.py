# SPDX-License-Identifier: MIT OR Apache-2.0
"""System calls for processes that must not outlive the agent.

Invariants
- The guardian adopts every orphan below it, and ends all of them when the agent's worker ends.
- The worker ends with the guardian, and a daemon with the worker, whatever ends them.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
#: Folders of agents: in memory, where contenders write their captures, and on a disk, for files that they read.
SCRATCH_PARENT, FILES_PARENT = Path("/dev/shm"), Path("/var/tmp")
PREFIX = "ringtap-lab-"

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Asks the kernel to kill this process when the thread that forked it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def guarded(work: Callable[[Path, Path], int]) -> int:
    """Runs `work` with a folder in memory and one on a disk in a child; ends every descendant and removes both."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sweep()
    scratch, files = (Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)) for parent in (SCRATCH_PARENT, FILES_PARENT))
    for folder in (scratch, files):
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)
    guardian = os.getpid()
    # Ctrl-C at a terminal reaches the whole process group: only the manager decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = os.fork()
    if worker == 0:
        die_with_parent()
        status = 1
        try:
            if os.getppid() == guardian:
                status = work(scratch, files)
        finally:
            os._exit(status)
    _, status = os.waitpid(worker, 0)
    end_children()
    for folder in (scratch, files):
        shutil.rmtree(folder, ignore_errors=True)
    return os.waitstatus_to_exitcode(status)


def sweep() -> None:
    """Removes folders of this user whose agent was killed together with its guardian."""
    for folder in (one for parent in (SCRATCH_PARENT, FILES_PARENT) for one in parent.glob(PREFIX + "*")):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # its agent lives
        finally:
            os.close(descriptor)


def end_children() -> None:
    """Kills and reaps all children until none is left; orphans become children meanwhile."""
    while True:
        for child in children(os.getpid()):
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children(parent: int) -> list[int]:
    """Processes whose parent this is."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[1]) == parent:
            found.append(int(process.name))
    return found


def tasks(group: int) -> list[Path]:
    """Threads of all processes of a process group."""
    found: list[Path] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) == group:
                found += (process / "task").iterdir()
        except OSError:
            pass  # it has ended meanwhile
    return found
