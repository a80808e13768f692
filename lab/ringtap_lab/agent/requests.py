# SPDX-License-Identifier: MIT OR Apache-2.0
"""What an agent can do for its manager: one method for each request."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

from ringtap_lab.agent import captures, counters
from ringtap_lab.agent.daemon import Daemon, DaemonError

LOOK_S = 0.005
IDLE_LOOK_S = 0.05
#: A daemon that runs no longer than this between two looks reads no packets.
IDLE_NS = 2_000_000


class Requests:
    """The daemons of one agent."""

    def __init__(self, scratch: Path, files: Path) -> None:
        self._scratch, self._files = scratch, files
        self._daemons: dict[str, Daemon] = {}

    async def carry_out(self, do: str, arguments: dict[str, Any]) -> Any:
        """Runs the method `do_NAME`."""
        method = getattr(self, f"do_{do}", None)
        if method is None:
            raise DaemonError("this agent knows no such request")
        return await method(**arguments)

    def kill_all(self) -> None:
        """Ends every daemon."""
        for daemon in self._daemons.values():
            daemon.kill()
        self._daemons.clear()

    async def do_hello(self) -> dict[str, Any]:
        """Facts of the machine, and where files may be written."""
        return {**counters.facts(), "scratch": str(self._scratch), "files": str(self._files),
                "pid": os.getpid()}  # fmt: skip

    async def do_ping(self) -> dict[str, int]:
        """The clocks of this machine."""
        return {"time_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}

    async def do_which(self, programs: list[str]) -> dict[str, str | None]:
        """Where programs are."""
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        return {name: shutil.which(name, path=path) for name in programs}

    async def do_put(self, name: str, text: str) -> str:
        """Writes a file into the scratch folder."""
        path = self._inside(name)
        path.write_text(text)
        return str(path)

    async def do_make(self, name: str, kind: str, parameters: dict[str, Any], limit_s: float) -> dict[str, int]:
        """Makes a capture file that stays until the agent ends; gives what is in it."""
        if name != Path(name).name or kind not in captures.KINDS:
            raise DaemonError(f"{name}: not the name of a file, or {kind} is none of {', '.join(captures.KINDS)}")
        # Meanwhile the agent must hear its manager.
        made = asyncio.to_thread(captures.KINDS[kind], self._files / name, **parameters)
        return vars(await asyncio.wait_for(made, limit_s))

    async def do_take(self, name: str) -> int | None:
        """Size of a file in the scratch folder, which is then removed; None if there is none."""
        path = self._inside(name)
        if not path.exists():
            return None
        size = path.stat().st_size
        path.unlink()
        return size

    def _inside(self, name: str) -> Path:
        if name != Path(name).name:
            raise DaemonError(f"{name}: not the name of a file in the scratch folder")
        return self._scratch / name

    async def do_start(self, name: str, command: str, stdin_ends_it: bool = False) -> int:
        """Starts a daemon; gives its process number."""
        if name in self._daemons:
            raise DaemonError(f"{name} runs already")
        self._daemons[name] = Daemon(command, stdin_ends_it, self._scratch)
        return self._daemons[name].process.pid

    async def do_ready(self, name: str, line: str | None, attached: str, device: str, limit_s: float) -> float:
        """Waits until a daemon says `line` and `attached` is there: `xdp`, `ring`, `pool` or `nothing`.

        Gives the seconds that it took."""
        daemon = self._daemons[name]
        start = time.monotonic()
        while not ((line is None or line in daemon.text()) and _is_there(daemon, attached, device)):
            daemon.must_live()
            if time.monotonic() - start > limit_s:
                raise daemon.fault(f"not ready after {limit_s:g} s")
            await asyncio.sleep(LOOK_S)
        return time.monotonic() - start

    async def do_idle(self, names: list[str], quiet_s: float, limit_s: float) -> float:
        """Waits until no daemon has run or wanted to for `quiet_s`: then all is read.

        Gives the seconds that it took."""
        daemons = [self._daemons[name] for name in names]
        start = since = time.monotonic()
        last = [one.cpu_ns() for one in daemons]
        while time.monotonic() - since < quiet_s:
            await asyncio.sleep(min(IDLE_LOOK_S, quiet_s / 4))
            for one in daemons:
                one.must_live()
            now = [one.cpu_ns() for one in daemons]
            ran = any(after - before > IDLE_NS for after, before in zip(now, last, strict=True))
            if ran or any(one.wants_to_run() for one in daemons):
                since = time.monotonic()
            last = now
            if time.monotonic() - start > limit_s:
                raise daemons[-1].fault(f"still busy {limit_s:g} s after the last packet")
        return time.monotonic() - start

    async def do_counters(self, devices: list[str], thread: str = "") -> dict[str, Any]:
        """Counters of devices and processors, and of each daemon: processor time, also of the threads with this name,
        memory, and what it has open and wrote."""
        found = counters.everything(devices)
        # First: to read the rest takes a while, and the daemons go on meanwhile.
        times = {name: (one.cpu_ns(), one.cpu_ns(thread)) for name, one in self._daemons.items()}
        found["daemons"] = {
            name: {
                "cpu_ns": times[name][0], "thread_ns": times[name][1], "memory_kib": one.memory_kib("Pss"),
                "own_kib": one.memory_kib("Anonymous"), "peak_kib": one.memory_kib("VmHWM", "status"),
                "descriptors": one.descriptors(), "mappings": one.mappings(), "logged_bytes": one.output_bytes(),
            }
            for name, one in self._daemons.items()
        }  # fmt: skip
        return found

    async def do_settle(self) -> dict[str, int]:
        """Memory of each daemon in KiB; `peak_kib` of the counters is the highest since now."""
        return {name: one.settle() for name, one in self._daemons.items()}

    async def do_stop(self, names: list[str], limit_s: float) -> dict[str, dict[str, Any]]:
        """Asks daemons to end, all at once; gives their exit status and output."""
        for name in names:
            self._daemons[name].ask_to_end()
        return {name: await self._collect(name, limit_s) for name in names}

    async def do_kill(self, name: str) -> None:
        """Kills a daemon, which must still run."""
        daemon = self._daemons.pop(name)
        try:
            daemon.must_live()
        finally:
            daemon.kill()

    async def do_kill_all(self) -> None:
        """Kills all daemons."""
        self.kill_all()

    async def do_run(self, name: str, command: str, limit_s: float) -> dict[str, Any]:
        """Runs a program to its end; gives exit status and output, and the seconds that it took and used."""
        before, begin = os.times(), time.monotonic()
        await self.do_start(name, command)
        found = await self._collect(name, limit_s)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        return {**found, "seconds": time.monotonic() - begin, "cpu_seconds": used}

    async def _collect(self, name: str, limit_s: float) -> dict[str, Any]:
        daemon = self._daemons[name]
        try:
            status = await daemon.ended(limit_s)
            return {"status": status, "output": daemon.text(), "output_bytes": daemon.output_bytes()}
        finally:
            # A reset may have killed it meanwhile.
            self._daemons.pop(name, None)
            daemon.kill()

    async def do_reset(self) -> None:
        """Kills all daemons and empties the scratch folder: the next case meets nothing of this one."""
        self.kill_all()
        for one in self._scratch.iterdir():
            with contextlib.suppress(OSError):
                shutil.rmtree(one) if one.is_dir() else one.unlink()

    async def do_leftovers(self, device: str) -> list[str]:
        """What daemons left behind on a device."""
        return counters.leftovers(device)


def _is_there(daemon: Daemon, attached: str, device: str) -> bool:
    match attached:
        case "xdp":
            return counters.xdp_attached(device)
        case "ring":
            return daemon.has_mapped("socket:[")
        case "pool":
            return daemon.has_mapped("bpf-map")
        case "nothing":
            return True
    raise DaemonError(f"{attached}: not xdp, ring, pool or nothing")
