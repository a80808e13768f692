# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs of a trial on their machines: command lines, preparation, start, and the sender's run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.contender import Contender
from ringtap_lab.manager.counts import CountError, figure
from ringtap_lab.manager.inventory import InventoryError
from ringtap_lab.manager.link import Agent

#: Memory for packets that wait where each reader has a ring of its own.
CROWD_RING_MIB = 16


@dataclass(frozen=True)
class Bench:
    """The agents of a trial, one on each machine."""

    injector: Agent
    sensor: Agent
    agents: tuple[Agent, ...]
    #: What is in each capture file that was made.
    made: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def receiver(self) -> Agent:
        """The agent behind the sensor."""
        for agent in self.agents:
            if "receiver" in agent.host.roles:
                return agent
        raise InventoryError("no host has the role receiver")


def command_of(
    agent: Agent, contender: Contender, case: Case, device: str, command: str, **more: str
) -> str:
    """A command line with its places filled in; `more` are those that the contender and the case do not fill."""
    places: dict[str, Any] = {f"{name}_cpu": cpu for name, cpu in agent.host.cpus.items()}
    places |= {name: name for name in contender.needs} | agent.host.programs
    for name, cpu in agent.host.cpus.items():
        cpus = list(dict.fromkeys([cpu, *agent.host.cpus.values()]))[: case.cores]
        places[f"{name}_cpus"] = ",".join(map(str, cpus))
    places |= {name: getattr(case, name) for name in ("size", "rate", "flows", "seconds", "file", "cores")}
    places["load"] = contender.load.format(load=case.load) if case.load != Case.load else ""
    if case.file and "/" not in case.file:
        places["file"] = f"{agent.facts['files']}/{case.file}"
    places |= {"files": agent.facts["files"], "out": agent.host.interfaces.get("out", "")}
    places |= {"dev": device, "scratch": agent.facts["scratch"], "here": contender.folder}
    places |= {"filter": "", "address": "", **more}
    ring = case.ring_mib
    places |= {"ring_mib": ring, "ring_kib": ring << 10, "ring_bytes": ring << 20, "crowd_ring_mib": CROWD_RING_MIB}
    try:
        return command.format(**places)
    except KeyError as error:
        raise InventoryError(f"{contender.name}: nothing fills {error} of its command") from None


@asynccontextmanager
async def prepared(sensor: Agent, contender: Contender, case: Case, device: str) -> AsyncIterator[list[str]]:
    """Makes files and devices that the contender needs; afterwards it adds to the list what was left behind."""
    problems: list[str] = []

    async def each(commands: tuple[str, ...]) -> None:
        for command in commands:
            text = command_of(sensor, contender, case, device, command)
            ended = await sensor.ask("run", name="setup", command=text, limit_s=contender.end_s)
            if ended["status"]:
                raise InventoryError(f"{text}: exit code {ended['status']}: {ended['output'].strip()[-400:]}")

    for name, text in contender.files.items():
        # A text has braces of its own: only the folder is filled in.
        await sensor.ask("put", name=name, text=text.replace("{scratch}", sensor.facts["scratch"]))
    try:
        await each(contender.setup)
        yield problems
    finally:
        # After a fault some still run, and hold what is taken away now.
        await sensor.ask("kill_all")
        await each(contender.teardown)
    problems += [f"left behind: {one}" for one in await sensor.ask("leftovers", device=device)]


async def start(agent: Agent, name: str, contender: Contender, case: Case, device: str, **more: str) -> None:
    """Starts a daemon, which is the contender or its server, and waits until it is ready."""
    server = contender.server if name in ("server", "service") else None
    one = server or contender
    text = command_of(agent, contender, case, device, one.command, **more)
    ends = contender.stdin_ends_it and server is None
    await agent.ask("start", name=name, command=text, stdin_ends_it=ends)
    ready = one.ready
    where = {"line": ready.line, "attached": ready.attached, "device": device}
    await agent.ask("ready", name=name, limit_s=ready.limit_s, **where)


async def send(bench: Bench, sender: Contender, case: Case) -> dict[str, Any]:
    """Sends; gives what the device took, and how long it took. Of a service, the figures of its client."""
    if case.rate == "none" and not case.service:
        await asyncio.sleep(case.seconds)
        return {"sent": 0, "elapsed_ns": int(case.seconds * 1e9)}
    agent, which = (bench.sensor, "in") if case.direction == "out" else (bench.injector, "out")
    address = bench.sensor.host.addresses.get("in", "")
    command = command_of(agent, sender, case, agent.host.device(which), sender.command, address=address)
    ended = await agent.ask("run", name="sender", command=command, limit_s=case.seconds + sender.end_s)
    if ended["status"] != 0:
        raise InventoryError(f"{command}: exit code {ended['status']}: {ended['output'].strip()[-400:]}")
    if case.service:
        return {name: figure(ended["output"], pattern) for name, pattern in sender.figures.items()}
    sent = sender.counts.read(ended["output"])
    if sent.get("final", 1) != 1 or sent["elapsed_ns"] <= 0:
        raise CountError(f"{sender.name}: no final report in its output: {ended['output'].strip()[-300:]!r}")
    return sent
