# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs that run beside the captured traffic: attackers, visitors, readers that are killed.

Invariants
- A program beside is ready before the sender begins and runs until the sender has ended; one that ends by itself is a
  fault. So is a victim that ended before it was killed.
- A victim is killed only after it was ready, and counts only if the sender still sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.contender import Contender
from ringtap_lab.manager.counts import figure
from ringtap_lab.manager.launch import start
from ringtap_lab.manager.link import Agent

#: Descriptions with their arguments.
Programs = list[tuple[Contender, str]]
#: What a server may keep of its memory: its allocator does not return everything.
KEPT_KIB = 32 * 1024
#: Time between two looks at a server.
LOOK_S = 0.1


@asynccontextmanager
async def running(agent: Agent, case: Case, device: str, programs: Programs) -> AsyncIterator[dict[str, Any]]:
    """Runs them; afterwards the dictionary has their figures and what went wrong."""
    found: dict[str, Any] = {"problems": [], "shown": []}
    names: dict[str, Contender] = {}
    victims: list[asyncio.Task[int]] = []
    ended = asyncio.Event()
    each = [(one, user, argument) for one, argument in programs for user in one.users]
    try:
        for number, (one, user, argument) in enumerate(each):
            places = {"user": user, "argument": argument}
            if one.life_s:
                victims.append(asyncio.create_task(_kill(agent, f"victim{number}", one, case, device, places, ended)))
            else:
                names[f"beside{number}"] = one
                await start(agent, f"beside{number}", one, case, device, **places)
        yield found
    finally:
        ended.set()
        await asyncio.gather(*victims, return_exceptions=True)
    if victims:
        found["kills"] = sum(one.result() for one in victims)
    limit_s = max((one.end_s for one in names.values()), default=0.0)
    for name, end in (await agent.ask("stop", names=list(names), limit_s=limit_s)).items():
        one = names[name]
        if end["status"]:
            found["problems"].append(f"{one.name} ended with {end['status']}: {end['output'].strip()[-300:]}")
            continue
        said = {key: figure(end["output"], pattern) for key, pattern in one.figures.items()}
        # Of the programs of several users, the highest.
        found |= {key: max(value, found.get(key, value)) for key, value in said.items()}
        found["shown"] += [key for key in said if key not in found["shown"]]


async def _kill(
    agent: Agent, name: str, one: Contender, case: Case, device: str, places: dict[str, str], ended: asyncio.Event
) -> int:
    """Starts a program and kills it after its life, until the sender has ended; gives how often."""
    kills = 0
    while not ended.is_set():
        await start(agent, name, one, case, device, **places)
        await asyncio.sleep(one.life_s)
        await agent.ask("kill", name=name)
        kills += not ended.is_set()
    return kills


async def left(agent: Agent, before: dict[str, int], limit_s: float) -> dict[str, Any]:
    """What a server has more than before: looks until everything is back, or the limit is over."""
    end = time.monotonic() + limit_s
    while True:
        now = (await agent.ask("counters", devices=[]))["daemons"]["server"]
        grown = {name: now[name] - before[name] for name in ("descriptors", "mappings", "own_kib", "logged_bytes")}
        back = max(grown["descriptors"], grown["mappings"]) <= 0 and grown["own_kib"] <= KEPT_KIB
        if back or time.monotonic() > end:
            return {"server_descriptors_grown": grown["descriptors"], "server_mappings_grown": grown["mappings"],
                    "server_grown_kib": grown["own_kib"], "server_logged_bytes": grown["logged_bytes"]}  # fmt: skip
        await asyncio.sleep(LOOK_S)
