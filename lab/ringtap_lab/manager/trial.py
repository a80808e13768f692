# SPDX-License-Identifier: MIT OR Apache-2.0
"""One trial: start a contender, send, let it finish, read all accounts, compare them.

Invariants
- Offered is what the sender's device took, by the kernel's counter; no contender has a say.
- A trial whose accounts contradict each other carries the reasons in `problems`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from ringtap_lab.manager import filters, service
from ringtap_lab.manager.battery import OPTIONS, Case, options_of
from ringtap_lab.manager.contender import Contender, Ready
from ringtap_lab.manager.counts import CountError, by_pattern, contradictions
from ringtap_lab.manager.inventory import InventoryError
from ringtap_lab.manager.link import Agent

#: A sender may take so much longer than it was asked to.
SENDER_GRACE_S = 20.0
#: After starting, a contender is ready for packets once it has done nothing for so long.
SETTLED_S = 0.1
#: Bytes of the frame check sequence, which is in no buffer.
FCS = 4
#: Memory for packets that wait, for every contender; where each reader has a ring of its own, its part.
RING_MIB, CROWD_RING_MIB = 64, 16


@dataclass(frozen=True)
class Bench:
    """The agents of a trial, one on each machine."""

    injector: Agent
    sensor: Agent
    agents: tuple[Agent, ...]


def command_of(
    agent: Agent, contender: Contender, case: Case, device: str, command: str, filter: str = "", address: str = ""
) -> str:
    """A command line with its places filled in."""
    places: dict[str, Any] = {f"{name}_cpu": cpu for name, cpu in agent.host.cpus.items()}
    places |= {name: name for name in contender.needs} | agent.host.programs
    places |= {name: getattr(case, name) for name in ("size", "rate", "flows", "seconds", "file")}
    places |= {name: "" for name in OPTIONS} | options_of(contender, case)
    places |= {"dev": device, "scratch": agent.facts["scratch"], "here": contender.folder, "filter": filter,
               "address": address}  # fmt: skip
    places |= {"ring_mib": RING_MIB, "ring_kib": RING_MIB << 10, "crowd_ring_mib": CROWD_RING_MIB}
    try:
        return command.format(**places)
    except KeyError as error:
        raise InventoryError(f"{contender.name}: nothing fills {error} of its command") from None


async def measure(bench: Bench, contender: Contender, sender: Contender, case: Case) -> dict[str, Any]:
    """One trial as a row of figures."""
    sensor = bench.sensor
    device = sensor.host.device("in")
    if sender.server:
        await _daemon(sensor, "service", command_of(sensor, sender, case, device, sender.server.command),
                      sender.server.ready, device)  # fmt: skip
    names = await _start(sensor, contender, case, device)
    readers = [name for name in names if name != "server"]
    # Attached is not yet ready: filters and tables come after.
    if not contender.spins:
        await sensor.ask("idle", names=readers, quiet_s=SETTLED_S, limit_s=contender.end_s)
    before = await sensor.ask("counters", devices=[device])
    sent = await send(bench, sender, case)
    after = await sensor.ask("counters", devices=[device])
    if contender.spins:
        # A program that never rests cannot be seen to be done.
        await asyncio.sleep(contender.quiet_s)
    else:
        await sensor.ask("idle", names=readers, quiet_s=contender.quiet_s, limit_s=contender.end_s)
    received = await sensor.ask("counters", devices=[device])
    ended = await sensor.ask("stop", names=readers, limit_s=contender.end_s)
    if contender.server:
        ended |= await sensor.ask("stop", names=["server"], limit_s=contender.end_s)
    came = {way: _passed(received, device, way) - _passed(before, device, way) for way in ("rx", "tx")}
    each = [ended[name] for name in readers]
    if case.service:
        row = service.account(contender, case, each, sent, sum(came.values()))
        row["elapsed_ns"] = after["time_ns"] - before["time_ns"]
    else:
        row = account(contender, case, each, sent, came["tx" if case.direction == "out" else "rx"])
    row |= _work(sensor, before, after, names, row["elapsed_ns"])
    row["reader_ns"] = _used_ns(before, received, readers) / max(1, row["delivered"])
    row["problems"] += [f"{name} ended with {one['status']}" for name, one in ended.items() if one["status"]]
    row["problems"] += [f"left behind: {one}" for one in await sensor.ask("leftovers", device=device)]
    row |= await _file(sensor, contender, case, row)
    row["command"] = command_of(sensor, contender, case, device, contender.command)
    return row


async def _start(sensor: Agent, contender: Contender, case: Case, device: str) -> list[str]:
    """Starts the contender; gives the names of its daemons once all are ready."""
    wanted = filters.of(case.filters, case.readers)
    daemons = {f"reader{at}": (contender.command, contender.ready, one.filter) for at, one in enumerate(wanted)}
    if contender.server:
        daemons = {"server": (contender.server.command, contender.server.ready, ""), **daemons}
    for name, (command, ready, filter) in daemons.items():
        text = command_of(sensor, contender, case, device, command, filter)
        await _daemon(sensor, name, text, ready, device, contender.stdin_ends_it and name != "server")
    return list(daemons)


async def _daemon(
    sensor: Agent, name: str, command: str, ready: Ready, device: str, stdin_ends_it: bool = False
) -> None:
    """Starts a daemon and waits until it is ready."""
    await sensor.ask("start", name=name, command=command, stdin_ends_it=stdin_ends_it)
    where = {"line": ready.line, "attached": ready.attached, "device": device}
    await sensor.ask("ready", name=name, limit_s=ready.limit_s, **where)


async def send(bench: Bench, sender: Contender, case: Case) -> dict[str, int]:
    """Sends; gives what the device took, and how long it took. Of a service, the figures of its client."""
    agent, which = (bench.sensor, "in") if case.direction == "out" else (bench.injector, "out")
    address = bench.sensor.host.addresses.get("in", "")
    command = command_of(agent, sender, case, agent.host.device(which), sender.command, address=address)
    ended = await agent.ask("run", name="sender", command=command, limit_s=case.seconds + SENDER_GRACE_S)
    if ended["status"] != 0:
        raise InventoryError(f"{command}: exit code {ended['status']}: {ended['output'].strip()[-400:]}")
    if case.service:
        return {name: by_pattern(ended["output"], pattern) for name, pattern in sender.figures.items()}
    sent = sender.counts.read(ended["output"])
    if sent.get("final", 1) != 1 or sent["elapsed_ns"] <= 0:
        raise CountError(f"{sender.name}: no final report in its output: {ended['output'].strip()[-300:]!r}")
    return sent


def account(
    contender: Contender, case: Case, ended: list[dict[str, Any]], sent: dict[str, int], came: int
) -> dict[str, Any]:
    """What all readers say, beside what was sent and what the device received."""
    offered = sent["sent"]
    each = [contender.counts.read(one["output"]) for one in ended]
    wanted = filters.of(case.filters, len(each))
    problems, missed = [], []
    for number, (counts, one) in enumerate(zip(each, wanted, strict=True), 1):
        reader = f"reader {number} of {len(each)}: " if len(each) > 1 else ""
        lost, shunted = counts.get("lost", 0), counts.get("shunted", 0)
        share = one.share(offered, counts["delivered"] + shunted + lost)
        # Of what it lost before its filter, a reader that wants nothing lost nothing.
        told = counts if one.part else {**counts, "lost": 0}
        problems += [reader + it for it in contradictions(told, offered, came if number == 1 else None, share)]
        missed.append(share - shunted - counts["delivered"])
    figures = [{key: by_pattern(one["output"], text) for key, text in contender.figures.items()} for one in ended]
    if case.filters != "parts":
        problems += same_headers(each, figures)
    problems += wrong_bytes(each, figures, case.size - FCS)
    shunted = max(counts.get("shunted", 0) for counts in each)
    kept = offered - shunted
    got = [counts["delivered"] * one.part for counts, one in zip(each, wanted, strict=True) if one.part]
    delivered = min(got, default=offered)
    return {
        "offered": offered,
        "received": came,
        "delivered": delivered,
        "shunted": shunted,
        "lost": sum(missed),
        "loss_percent": 100.0 * (kept - delivered) / kept if kept else 0.0,
        "elapsed_ns": sent["elapsed_ns"],
        "offered_pps": offered * 1e9 / sent["elapsed_ns"],
        "delivered_pps": delivered * 1e9 / sent["elapsed_ns"],
        "readers": each,
        **{key: value for key, value in figures[0].items() if key not in ("header_sum", "bytes")},
        "problems": problems,
    }


def same_headers(each: list[dict[str, int]], figures: list[dict[str, int]]) -> list[str]:
    """Readers that got the same packets must have read the same headers."""
    sums: dict[int, set[int]] = {}
    for counts, one in zip(each, figures, strict=True):
        if "header_sum" in one:
            sums.setdefault(counts["delivered"], set()).add(one["header_sum"])
    return [
        f"headers of the same {delivered} packets have the sums {sorted(different)}"
        for delivered, different in sums.items()
        if len(different) > 1 or (delivered > 0 and 0 in different)
    ]


def wrong_bytes(each: list[dict[str, int]], figures: list[dict[str, int]], length: int) -> list[str]:
    """A reader that adds the bytes of its packets must have read all of each."""
    return [
        f"it read {one['bytes']} bytes of {counts['delivered']} packets of {length}"
        for counts, one in zip(each, figures, strict=True)
        if one.get("bytes", counts["delivered"] * length) != counts["delivered"] * length
    ]


def _passed(counters: Any, device: str, way: str) -> int:
    return int(counters["devices"][device][f"{way}_packets"])


def _used_ns(before: Any, after: Any, names: list[str]) -> int:
    return sum(after["daemons"][name]["cpu_ns"] - before["daemons"][name]["cpu_ns"] for name in names)


def _work(sensor: Agent, before: Any, after: Any, names: list[str], elapsed_ns: int) -> dict[str, Any]:
    """Processor time and memory of the daemons, and who disturbed the readers' core."""
    used = _used_ns(before, after, names)
    found = {
        "cpu_percent": 100.0 * used / elapsed_ns,
        "memory_kib": sum(after["daemons"][name]["memory_kib"] for name in names),
        "softnet_dropped": after["softnet_dropped"] - before["softnet_dropped"],
    }
    cpu = str(sensor.host.cpus.get("reader", ""))
    if cpu in before["processors"]:
        first, last = before["processors"][cpu], after["processors"][cpu]
        busy_ms = (last["busy"] - first["busy"]) * before["tick_ms"]
        found["stolen_ms"] = (last["stolen"] - first["stolen"]) * before["tick_ms"]
        found["disturbed_ms"] = max(0, busy_ms - used // 1_000_000)
    return found


async def _file(sensor: Agent, contender: Contender, case: Case, row: dict[str, Any]) -> dict[str, Any]:
    """Size of its file, which must be long enough for what it says that it wrote."""
    if not contender.writes:
        return {}
    size = await sensor.ask("take", name=contender.writes)
    problems = list(row["problems"])
    length = 1 if case.file or case.service else case.size - FCS
    if size is None or size < row["delivered"] * length:
        problems.append(f"its file has only {size or 0} bytes for {row['delivered']} packets")
    if contender.beside and await sensor.ask("take", name=contender.beside) is None:
        problems.append(f"there is no {contender.beside}")
    return {"file_bytes": size, "problems": problems}
