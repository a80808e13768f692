# SPDX-License-Identifier: MIT OR Apache-2.0
"""Connection from the manager to one agent: starts it, sends requests, receives answers.

Invariants
- The agent's code goes over the connection; nothing is installed or written on the other machine.
- An answer is at most `MAX_ANSWER_BYTES` long; a longer one ends the connection.
- A request that is not answered within its limit fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import shlex
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from ringtap_lab.manager.inventory import Host

MAX_ANSWER_BYTES = 4 << 20
PIECE_BYTES = 1 << 16
PING_S = 2.0
CONNECT_S = 20.0
#: The agent needs so much longer than the limit that it was given.
GRACE_S = 10.0
#: An agent ends its daemons in much less.
CLOSE_S = 3.0
#: Reads the package from standard input into memory, and runs the agent from there.
BOOT = """\
import os, sys
f = open(0, "rb", 0, closefd=False)
size = int(f.readline())
data = b""
while len(data) < size:
    piece = f.read(size - len(data))
    if not piece: sys.exit(1)
    data += piece
m = os.memfd_create("ringtap-lab-agent")
while data: data = data[os.write(m, data):]
sys.path.insert(0, f"/proc/self/fd/{m}")
from ringtap_lab.agent.main import main
main()
"""


class LinkError(Exception):
    """A machine cannot be reached, or its agent does not answer."""


class RequestError(Exception):
    """An agent could not do what was asked; the text is the agent's."""


class Reader(Protocol):
    """What arrives from the agent."""

    async def read(self, count: int, /) -> bytes: ...


class Channel(Protocol):
    """A running agent's streams, over whatever connects it."""

    stdout: Reader

    def send(self, data: bytes) -> None: ...
    async def complaint(self) -> str: ...
    async def close(self) -> None: ...


def bundle() -> bytes:
    """The agent's package as an archive in memory."""
    root = Path(__file__).resolve().parents[2]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in [root / "ringtap_lab/__init__.py", *sorted((root / "ringtap_lab/agent").glob("*.py"))]:
            archive.write(path, path.relative_to(root))
    return packed.getvalue()


class LocalChannel:
    """An agent on this machine, in a network namespace or not."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        self._process = process
        self.stdout: Reader = process.stdout

    @classmethod
    async def open(cls, host: Host) -> LocalChannel:
        """Starts the agent."""
        command = [host.python, "-I", "-c", BOOT]
        if host.namespace:
            # A mount of the namespace's own /sys; libxdp, which DPDK uses, pins below /sys/fs/bpf.
            mounted = f"mount -t bpf bpf /sys/fs/bpf && exec {shlex.join(command)}"
            command = ["ip", "netns", "exec", host.namespace, "sh", "-c", mounted]
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe))

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    async def complaint(self) -> str:
        assert self._process.stderr is not None
        return (await self._process.stderr.read(PIECE_BYTES)).decode(errors="replace").strip()[-600:]

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        # A process whose full pipes nobody reads cannot be waited for.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended(), CLOSE_S)
            return
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            self._process.kill()
            await asyncio.wait_for(self._ended(), CLOSE_S)

    async def _ended(self) -> None:
        assert self._process.stdout is not None and self._process.stderr is not None
        await asyncio.gather(_drain(self._process.stdout), _drain(self._process.stderr))
        await self._process.wait()


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(PIECE_BYTES):
        pass


async def open_channel(host: Host) -> Channel:
    """Starts the agent on a machine."""
    try:
        if host.ssh is None:
            return await LocalChannel.open(host)
        from ringtap_lab.manager.ssh import SshChannel

        return await asyncio.wait_for(SshChannel.open(host, host.ssh), CONNECT_S)
    except ImportError as error:
        raise LinkError(f"{host.name}: {error}: install it with `pip install ringtap-lab[ssh]`") from None
    except TimeoutError:
        raise LinkError(f"{host.name}: no connection after {CONNECT_S:g} s") from None
    except OSError as error:
        raise LinkError(f"{host.name}: cannot be reached: {error}") from None


class Agent:
    """One agent, while `async with` lasts."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.facts: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._broken: LinkError | None = None

    async def __aenter__(self) -> Agent:
        self._channel = await open_channel(self.host)
        packed = bundle()
        self._channel.send(b"%d\n" % len(packed) + packed)
        self._tasks = [asyncio.create_task(self._receive())]
        try:
            self.facts = await self.ask("hello")
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        self._tasks.append(asyncio.create_task(self._ping()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()

    async def ask(self, do: str, **arguments: Any) -> Any:
        """Sends a request; gives the answer. `limit_s` among the arguments is the agent's limit.

        Raises RequestError if the agent could not do it, LinkError if it does not answer."""
        if self._broken:
            raise self._broken
        limit_s = arguments.get("limit_s", CONNECT_S) + GRACE_S
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._channel.send(json.dumps({"id": number, "do": do, **arguments}).encode() + b"\n")
        try:
            return await asyncio.wait_for(answer, limit_s)
        except TimeoutError:
            raise LinkError(f"{self.host.name}: the agent did not answer `{do}` in {limit_s:g} s") from None
        finally:
            self._waiting.pop(number, None)

    async def _receive(self) -> None:
        held = b""
        fault = "its agent ended"
        try:
            while piece := await self._channel.stdout.read(PIECE_BYTES):
                *lines, held = (held + piece).split(b"\n")
                for line in lines:
                    self._deliver(json.loads(line))
                if len(held) > MAX_ANSWER_BYTES:
                    fault = f"its agent sent more than {MAX_ANSWER_BYTES} bytes in one answer"
                    break
        except (ValueError, TypeError, AttributeError, OSError) as error:
            fault = f"its agent sent nonsense: {error}"
        await self._fail(fault)

    def _deliver(self, answer: dict[str, Any]) -> None:
        waiting = self._waiting.get(answer["id"])
        if waiting is None or waiting.done():
            return  # nobody waits for it any more
        if "error" in answer:
            waiting.set_exception(RequestError(f"{self.host.name}: {answer['error']}"))
        else:
            waiting.set_result(answer["ok"])

    async def _fail(self, fault: str) -> None:
        with contextlib.suppress(TimeoutError):
            fault += ": " + (await asyncio.wait_for(self._channel.complaint(), 2.0) or "it gave no reason")
        self._broken = LinkError(f"{self.host.name}: {fault}")
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self._broken)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            with contextlib.suppress(LinkError, RequestError):
                await self.ask("ping")
