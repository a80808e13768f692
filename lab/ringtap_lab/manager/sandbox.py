# SPDX-License-Identifier: MIT OR Apache-2.0
"""The sandbox of a measurement: its own network, mounts and processes.

Invariants
- Nothing outlives the run: the namespaces have no names, so the kernel removes them, with every
  device, program, file and process in them, when the inner process ends, however it ends.
- The outer process only waits and passes signals on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

NEW_NS, NEW_PID, NEW_NET = 0x00020000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 0x4000, 1 << 18
PR_SET_PDEATHSIG = 1

#: Sending side and captured side of the veth pair.
SENDER, CAPTURED = "rt0", "rt1"
#: Files of the run: a tmpfs of our own, over the one that every Linux has.
SCRATCH = Path("/dev/shm")

_libc = ctypes.CDLL(None, use_errno=True)


class SandboxError(Exception):
    """The sandbox could not be made."""


def _check(result: int, what: str) -> None:
    if result != 0:
        raise SandboxError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    names = [name.encode() if name else None for name in (source, target, kind)]
    _check(_libc.mount(*names, ctypes.c_ulong(flags), None), f"mount {source} on {target}")


def run_inside(work: Callable[[], int]) -> int:
    """Runs `work` as the first process of new namespaces; gives its exit status."""
    _check(_libc.unshare(NEW_NS | NEW_PID | NEW_NET), "unshare")
    outer = os.getpid()
    child = os.fork()
    if child:
        return _supervise(child)
    status = 1
    try:
        os.setpgid(0, 0)
        _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
        if os.getppid() not in (0, outer):
            return 1
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGHUP, _interrupt)
        _private_mounts()
        status = work()
    except KeyboardInterrupt:
        print("\nringtap-lab: interrupted", file=sys.stderr)
        status = 130
    except SandboxError as error:
        print(f"ringtap-lab: {error}", file=sys.stderr)
    except Exception:
        # What follows ends this process without another word.
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _interrupt(_number: int, _frame: object) -> None:
    # As Ctrl-C does: asyncio then cancels what runs, and not what hears the agents.
    signal.raise_signal(signal.SIGINT)


def _supervise(child: int) -> int:
    """Waits for the inner process; one signal asks it to end, the second makes it."""
    asked: list[int] = []

    def forward(number: int, _frame: object) -> None:
        os.kill(child, signal.SIGKILL if asked else number)
        asked.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _private_mounts() -> None:
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    # Processes and interfaces of these namespaces, not of the machine's.
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    # Where libxdp, which DPDK uses, pins what it shares with other programs.
    _mount("bpf", "/sys/fs/bpf", "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount("tmpfs", str(SCRATCH), "tmpfs", MS_NOSUID | MS_NODEV)
    # Names of network namespaces, and whatever programs keep while they run.
    _mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV)


def make_veth() -> None:
    """The veth pair and lo, up, without anything that talks by itself."""
    for scope in ("all", "default"):
        path = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if path.exists():
            # IPv6 announces itself on new devices: packets that nobody sent would be counted.
            path.write_text("1")
    commands = [
        "ip link set lo up",
        f"ip link add {SENDER} type veth peer name {CAPTURED}",
        f"ip link set {SENDER} up",
        f"ip link set {CAPTURED} up",
        # Without NAPI on the far side a veth drops what is redirected into it.
        f"ethtool -K {CAPTURED} gro on",
    ]
    for command in commands:
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SandboxError(f"{command}: {done.stderr.strip()}")


def counter(name: str, device: str = CAPTURED) -> int:
    """One of the kernel's counters of a device, as in `ip -s link`."""
    return int(Path(f"/sys/class/net/{device}/statistics/{name}").read_text())
