# SPDX-License-Identifier: MIT OR Apache-2.0
"""The one loop: all turns of a battery, each row on disk before the next begins.

Invariants
- A case at fault is recorded with its problems; the others go on.
- Between two turns, no daemon of the first is left.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from ringtap_lab.manager.battery import Battery, Case, Turn
from ringtap_lab.manager.contender import Contender
from ringtap_lab.manager.counts import CountError
from ringtap_lab.manager.inventory import Inventory, InventoryError
from ringtap_lab.manager.launch import Bench, command_of
from ringtap_lab.manager.link import Agent, RequestError
from ringtap_lab.manager.record import Record
from ringtap_lab.manager.search import Search
from ringtap_lab.manager.trial import COMMAND_S, measure
from ringtap_lab.planner.quantities import Rate

#: A trial that takes so much longer than it should hangs.
TRIAL_GRACE_S = 90.0


@dataclass
class Runner:
    """One run of a battery."""

    battery: Battery
    inventory: Inventory
    contenders: dict[str, Contender]
    say: Callable[[str], None]

    async def connect(self, stack: AsyncExitStack) -> Bench:
        """Starts the agents; they end with the stack."""
        injector, sensor = (self.inventory.role(role).name for role in ("injector", "sensor"))
        agents = {host.name: await stack.enter_async_context(Agent(host)) for host in self.inventory.hosts}
        return Bench(agents[injector], agents[sensor], tuple(agents.values()))

    async def missing(self, bench: Bench) -> dict[str, str]:
        """Contenders that cannot run here: what is missing, and how to install it."""
        found = {}
        for one in (self.contenders[name] for name in sorted(self.battery.kinds())):
            agent = bench.injector if one.kind in ("sender", "service") else bench.sensor
            wanted = {need: agent.host.programs.get(need, need) for need in one.needs}
            there = await agent.ask("which", programs=list(wanted.values()))
            absent = [need for need, path in wanted.items() if there[path] is None]
            if absent:
                found[one.name] = f"not installed here: {', '.join(absent)}: {one.install or 'no hint'}"
        return found

    async def head(self, bench: Bench, missing: dict[str, str]) -> dict[str, Any]:
        """All that is known before anything is measured."""
        machines = {agent.host.name: {**agent.facts, "clock": await clock(agent)} for agent in bench.agents}
        described = {}
        for one in (self.contenders[name] for name in sorted(self.battery.kinds())):
            described[one.name] = {
                "note": one.note, "command": one.command, "server": one.server.command if one.server else "",
                "missing": missing.get(one.name, ""),
                "version": "" if one.name in missing else await self._version(bench, one),
            }  # fmt: skip
        layout = {host.name: {"roles": host.roles, "interfaces": host.interfaces, "cpus": host.cpus}
                  for host in self.inventory.hosts}  # fmt: skip
        return {"title": self.battery.title, "text": self.battery.text, "sender": self.battery.sender,
                "machines": machines, "contenders": described, "layout": layout}  # fmt: skip

    async def _version(self, bench: Bench, one: Contender) -> str:
        command, pattern = one.version
        if not command:
            return ""
        agent = bench.injector if one.kind in ("sender", "service") else bench.sensor
        text = command_of(agent, one, Case(one.name), "none", command)
        try:
            ended = await agent.ask("run", name="version", command=text, limit_s=20)
        except RequestError:
            return "unknown"
        return first_match(pattern, ended["output"]) or "unknown"

    async def run(self, bench: Bench, record: Record, missing: dict[str, str]) -> int:
        """Measures every turn that the record lacks; gives the number of rows at fault."""
        if self.battery.sender in missing:
            raise InventoryError(f"{self.battery.sender}: {missing[self.battery.sender]}")
        await self._make(bench)
        turns = [turn for turn in self.battery.turns() if not turn.case.names & set(missing)]
        rows = record.rows()
        done = {(row["key"], row["repetition"]) for row in rows}
        left = [turn for turn in turns if (turn.case.key, turn.repetition) not in done]
        if len(left) < len(turns):
            self.say(f"{len(turns) - len(left)} of {len(turns)} turns are in the record already")
        faults, planned, start = 0, sum(turn.seconds for turn in left), time.monotonic()
        passed = 0.0
        for number, turn in enumerate(left, 1):
            row = await self._turn(bench, turn, rows)
            record.append(row)
            rows.append(row)
            faults += bool(row["problems"])
            passed += turn.seconds
            # What was planned for the rest, at the pace of what was measured.
            remaining = (planned - passed) * (time.monotonic() - start) / passed
            self.say(f"{number:>3}/{len(left)}  {turn.case.group}  {turn.case.label:<24} {told(row)}"
                     f"  ({remaining // 60:.0f} min {remaining % 60:.0f} s left)")  # fmt: skip
        return faults

    async def _make(self, bench: Bench) -> None:
        """Makes the battery's capture files on the machines that use them."""
        for one in self.battery.files:
            commands = {case.method == "command" for case, _ in self.battery.cases if case.file == one.name}
            for agent in {bench.sensor if command else bench.injector for command in commands or {True}}:
                self.say(f"makes {one.name} ({one.kind}, {one.parameters})")
                bench.made[one.name] = await agent.ask(
                    "make", name=one.name, kind=one.kind, parameters=one.parameters, limit_s=COMMAND_S
                )

    async def _turn(self, bench: Bench, turn: Turn, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """One row: what was measured, or why it was not."""
        head = {"key": turn.case.key, "case": asdict(turn.case), "group": turn.case.group,
                "repetition": turn.repetition, "began_s": time.time()}  # fmt: skip
        try:
            if turn.case.method == "lossless":
                return {**head, **await self._search(bench, turn.case, hint_of(rows, turn.case.key))}
            return {**head, **await self._trial(bench, turn.case)}
        except (RequestError, CountError, InventoryError, TimeoutError) as error:
            return {**head, "problems": [str(error) or "it did not end in time"]}

    async def _trial(self, bench: Bench, case: Case) -> dict[str, Any]:
        contender, sender = self.contenders[case.contender], self.contenders[case.service or self.battery.sender]
        try:
            limit = COMMAND_S if case.method == "command" else case.seconds
            limit += max(TRIAL_GRACE_S, 3 * contender.end_s)
            receiver = self.contenders[self.battery.receiver] if self.battery.receiver else None
            beside = [(self.contenders[name], argument) for name, argument in case.programs]
            return await asyncio.wait_for(measure(bench, contender, sender, case, receiver, beside), limit)
        finally:
            for agent in bench.agents:
                await agent.ask("reset")

    async def _search(self, bench: Bench, case: Case, hint: float | None) -> dict[str, Any]:
        # The rate of a case whose rate is searched is where the search begins.
        first = Rate.read(case.rate).pps(case.size) if case.rate != Case.rate else None
        search, trials = Search(hint or first, self.battery.goals), []
        while rate := search.rate:
            row = await self._trial(bench, replace(case, rate=rate))
            trials.append({"rate": rate, **row})
            if row["problems"]:
                return {"trials": trials, "problems": [f"at {rate}: {one}" for one in row["problems"]]}
            # Of what was not withheld, so that the next rate is near the answer.
            taken_pps = row["offered_pps"] * (1 - row["loss_percent"] / 100)
            search.tell(row["offered_pps"], taken_pps, row["lost"] == 0)
        return {**search.result(), "command": trials[-1]["command"], "trials": trials, "problems": []}


def hint_of(rows: list[dict[str, Any]], key: str) -> float | None:
    """What earlier repetitions of a search found."""
    known = [row["lossless_pps"] for row in rows if row["key"] == key and row.get("lossless_pps")]
    return statistics.median(known) if known else None


def told(row: dict[str, Any]) -> str:
    """A row in the user's line."""
    if row["problems"]:
        return f"AT FAULT: {row['problems'][0]:.160}"
    if "seconds" in row:
        return f"{row['seconds']:9.4f} s, {row['cpu_seconds']:.2f} s of processors"
    if "lossless_pps" in row:
        limit = " (the sender's limit)" if row["limited"] else ""
        return f"{row['lossless_pps'] / 1e6:8.3f} Mpps without loss{limit}"
    if "served" in row:
        return "  ".join([*(f"{name} {value:,}" for name, value in row["served"].items()),
                          f"{row['loss_percent']:6.2f} % lost"])  # fmt: skip
    times = f"  median {row['median_ns'] / 1e3:.1f} us, p99 {row['p99_ns'] / 1e3:.1f} us" if "median_ns" in row else ""
    return f"{row['delivered_pps'] / 1e6:8.3f} Mpps  {row['loss_percent']:6.2f} % lost{times}"


def first_match(pattern: str, text: str) -> str:
    """The first group of a pattern in a text; empty if there is none."""
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1) if found else ""


async def clock(agent: Agent) -> dict[str, float]:
    """Difference of the agent's clock to ours, and how far it may be wrong: half of the shortest round trip."""
    best: tuple[float, float] | None = None
    for _ in range(5):
        begin = time.time_ns()
        theirs = (await agent.ask("ping"))["time_ns"]
        end = time.time_ns()
        seen = ((end - begin) / 2e6, (theirs - (begin + end) / 2) / 1e6)
        best = min(best, seen) if best else seen
    assert best is not None
    return {"difference_ms": round(best[1], 3), "uncertainty_ms": round(best[0], 3)}

