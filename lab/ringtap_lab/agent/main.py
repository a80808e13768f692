# SPDX-License-Identifier: MIT OR Apache-2.0
"""The agent: carries out requests that arrive on standard input, answers on standard output.

A request is one line of JSON, `{"id": 1, "do": "start", ...}`; its answer is `{"id": 1, "ok": ...}`
or `{"id": 1, "error": "..."}`.

Invariants
- Only the connection that started the agent commands it.
- When the connection ends, or nothing was heard for `LEASE_S`, every daemon ends and the agent with them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from ringtap_lab.agent import processes
from ringtap_lab.agent.requests import Requests

#: The manager pings much more often; an agent that hears nothing has lost it.
LEASE_S = 8.0
MAX_LINE_BYTES = 1 << 20


def main() -> None:
    """Serves the manager on the standard streams."""
    sys.exit(processes.guarded(lambda scratch, files: asyncio.run(serve(scratch, files))))


async def serve(scratch: Path, files: Path) -> int:
    """Carries out requests until the connection ends; gives the exit status."""
    loop = asyncio.get_running_loop()
    # A manager that does not read must not keep the agent from noticing the end of its lease.
    os.set_blocking(1, False)
    writing = asyncio.Lock()
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb", 0))
    requests = Requests(scratch, files)
    running: set[asyncio.Task[None]] = set()
    try:
        while True:
            line = await asyncio.wait_for(reader.readline(), LEASE_S)
            if not line:
                return 0
            task = asyncio.create_task(_answer(requests, json.loads(line), writing))
            running.add(task)
            task.add_done_callback(running.discard)
    except (TimeoutError, ValueError, ConnectionError) as error:
        print(f"agent: ends: {type(error).__name__} {error}", file=sys.stderr)
        return 1
    finally:
        requests.kill_all()


async def _answer(requests: Requests, request: dict[str, Any], writing: asyncio.Lock) -> None:
    identity, do = request.pop("id"), request.pop("do")
    try:
        answer: dict[str, Any] = {"id": identity, "ok": await requests.carry_out(do, request)}
    except Exception as error:
        # Whatever went wrong, the manager must know, and other requests go on.
        text = str(error) or type(error).__name__
        answer = {"id": identity, "error": f"{do}: {text}"[-4000:]}
    async with writing:
        await _write(json.dumps(answer).encode() + b"\n")


async def _write(data: bytes) -> None:
    while data:
        try:
            data = data[os.write(1, data) :]
        except BlockingIOError:
            await asyncio.sleep(0.001)
        except BrokenPipeError:
            return  # the end of the connection is seen at its other stream
