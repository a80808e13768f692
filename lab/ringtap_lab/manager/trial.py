# SPDX-License-Identifier: MIT OR Apache-2.0
"""One trial: start a contender, send, let it finish, read all accounts, compare them.

Invariants
- Offered is what the sender's device took, by the kernel's counter; no contender has a say.
- A trial whose accounts contradict each other carries the reasons in `problems`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from ringtap_lab.manager import beside, filters, service
from ringtap_lab.manager.accounts import FCS, account
from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.contender import Contender
from ringtap_lab.manager.counts import CountError, figure
from ringtap_lab.manager.launch import Bench, command_of, prepared, send, start
from ringtap_lab.manager.link import Agent
from ringtap_lab.planner.quantities import PlanError, Rate

#: After starting, a contender is ready for packets once it has done nothing for so long.
SETTLED_S = 0.1
#: Longest that a program may work on a file.
COMMAND_S = 600.0


async def measure(
    bench: Bench, contender: Contender, sender: Contender, case: Case, receiver: Contender | None,
    programs: beside.Programs,
) -> dict[str, Any]:  # fmt: skip
    """One trial as a row of figures."""
    sensor = bench.sensor
    device = sensor.host.device("in")
    async with prepared(sensor, contender, case, device) as problems:
        if case.method == "command":
            row = await _command(bench, contender, case)
        else:
            row = await _trial(bench, contender, case, sender, receiver, programs)
    row["problems"] += problems
    row |= await _file(sensor, contender, case, row)
    row["command"] = command_of(sensor, contender, case, device, contender.command)
    row["shown"] = sorted(contender.figures) + row.pop("shown", [])
    return row


async def _trial(
    bench: Bench, contender: Contender, case: Case, sender: Contender, receiver: Contender | None,
    programs: beside.Programs,
) -> dict[str, Any]:  # fmt: skip
    sensor = bench.sensor
    device = sensor.host.device("in")
    if receiver:
        await start(bench.receiver, "receiver", receiver, case, bench.receiver.host.device("in"))
    if sender.server:
        await start(sensor, "service", sender, case, device)
    readers = [f"reader{at}" for at in range(case.readers)] if contender.command else []
    names = [*(["server"] if contender.server else []), *readers]
    wanted = filters.of(case.filters, case.readers)
    for name in names:
        filter = wanted[readers.index(name)].filter if name in readers else ""
        await start(sensor, name, contender, case, device, filter=filter)
    # Attached is not yet ready: filters and tables come after.
    if not contender.spins and readers:
        await sensor.ask("idle", names=readers, quiet_s=SETTLED_S, limit_s=contender.end_s)
    thread = contender.server.thread if contender.server else ""
    alone = await sensor.ask("counters", devices=[]) if programs and contender.server else None
    async with beside.running(sensor, case, device, programs) as company:
        before = await sensor.ask("counters", devices=[device], thread=thread)
        sent, settled = await asyncio.gather(send(bench, sender, case), _settled(sensor, case))
        after = await sensor.ask("counters", devices=[device], thread=thread)
    quiet_s = contender.quiet_s
    if contender.spins or not readers:
        # A program that never rests cannot be seen to be done.
        await asyncio.sleep(waited_s := quiet_s)
    else:
        waited_s = await sensor.ask("idle", names=readers, quiet_s=quiet_s, limit_s=contender.end_s)
    received = await sensor.ask("counters", devices=[device])
    if alone:
        company |= await beside.left(sensor, alone["daemons"]["server"], contender.end_s)
    ended = await sensor.ask("stop", names=readers, limit_s=contender.end_s)
    if contender.server:
        ended |= await sensor.ask("stop", names=["server"], limit_s=contender.end_s)
    came = {way: _passed(received, before, device, f"{way}_packets") for way in ("rx", "tx")}
    nic_dropped = _passed(received, before, device, "rx_missed_errors")
    server = contender.server and contender.server.counts
    outputs = [ended[name]["output"] for name in (["server"] if server else readers)]
    if contender.check:
        outputs[-1] += await _check(sensor, contender, case, device)
    out = await _received(bench, receiver) if receiver else None
    if case.service:
        row = service.account(contender, case, outputs, sent, sum(came.values()))
        row["elapsed_ns"] = after["time_ns"] - before["time_ns"]
    else:
        arrived, unseen = came["tx"] if case.direction == "out" else came["rx"] + nic_dropped, {}
        if any(one.cuts_link for one, _ in programs):
            # In an outage packets get lost on their way, or the device receives them and no program.
            told = contender.counts.read(outputs[0])
            sent["sent"] = min(arrived, told["delivered"] + told.get("lost", 0))
            unseen, arrived = {"unseen": arrived - sent["sent"]}, sent["sent"]
        row = account(contender, case, outputs, sent, arrived, out, nic_dropped) | unseen
    row |= _work(sensor, before, after, names, row["elapsed_ns"])
    if thread:
        row |= _thread(contender, before, after, row["elapsed_ns"])
    if settled:
        row["settled_grown_kib"] = sum(after["daemons"][name]["peak_kib"] - settled[name] for name in names)
    row["problems"] += company.pop("problems")
    row |= company
    # What waited when the sender ended took its time, too.
    row["read_pps"] = row["delivered"] / (row["elapsed_ns"] / 1e9 + max(0.0, waited_s - quiet_s))
    row["reader_ns"] = _used_ns(before, received, readers) / max(1, row["delivered"])
    row["problems"] += [f"{name} ended with {one['status']}" for name, one in ended.items() if one["status"]]
    if case.method == "rate" and not case.file:
        # A rate that only the sender can read has no such figure.
        with suppress(PlanError):
            row["rate_off_percent"] = off_percent(case, row)
    return row


async def _settled(sensor: Agent, case: Case) -> dict[str, int]:
    """Memory of the daemons after the warm-up; empty if the case has none."""
    if not case.warm_up:
        return {}
    await asyncio.sleep(case.warm_up * case.seconds)
    return dict(await sensor.ask("settle"))


async def _command(bench: Bench, contender: Contender, case: Case) -> dict[str, Any]:
    """Runs a program to its end."""
    sensor = bench.sensor
    device = sensor.host.device("in")
    if contender.server:
        await start(sensor, "server", contender, case, device)
    command = command_of(sensor, contender, case, device, contender.command)
    ended = await sensor.ask("run", name="command", command=command, limit_s=COMMAND_S)
    outputs = {"command": ended}
    if contender.server:
        outputs |= await sensor.ask("stop", names=["server"], limit_s=contender.end_s)
    problems = [f"{name} ended with {one['status']}: {one['output'].strip()[-300:]}"
                for name, one in outputs.items() if one["status"]]  # fmt: skip
    if problems:
        return {"problems": problems}
    text = outputs["server" if contender.server and contender.server.counts else "command"]["output"]
    if contender.check:
        text += await _check(sensor, contender, case, device)
    counts, made = contender.counts.read(text), bench.made.get(case.file, {})
    row: dict[str, Any] = {"seconds": ended["seconds"], "cpu_seconds": ended["cpu_seconds"], **counts}
    row |= {name: figure(text, pattern) for name, pattern in contender.figures.items()}
    if made:
        row |= {"source_bytes": made["file_bytes"], "mb_per_s": made["file_bytes"] / 1e6 / ended["seconds"],
                "file_pps": made["packets"] / ended["seconds"],
                "cpu_pps": made["packets"] / max(ended["cpu_seconds"], 1e-9),
                "cpu_gb_per_s": made["file_bytes"] / 1e9 / max(ended["cpu_seconds"], 1e-9)}  # fmt: skip
        right = {**made, "delivered": made["packets"]}
        off = {name: 100.0 * abs(counts[name] - right[name]) / right[name] for name in counts if name in right}
        row["off_percent"] = max(off.values(), default=0.0)
        if not contender.approximate:
            problems = [f"{name} is {counts[name]}, {right[name]} is right" for name, one in off.items() if one]
    return {**row, "problems": problems}


async def _check(sensor: Agent, contender: Contender, case: Case, device: str) -> str:
    text = command_of(sensor, contender, case, device, contender.check)
    ended = await sensor.ask("run", name="check", command=text, limit_s=contender.end_s)
    return f"\n{ended['output']}"


async def _received(bench: Bench, receiver: Contender) -> int:
    """Packets that came out of the sensor again."""
    await bench.receiver.ask("idle", names=["receiver"], quiet_s=receiver.quiet_s, limit_s=receiver.end_s)
    ended = await bench.receiver.ask("stop", names=["receiver"], limit_s=receiver.end_s)
    return receiver.counts.read(ended["receiver"]["output"])["delivered"]


def off_percent(case: Case, row: dict[str, Any]) -> float:
    """How far the sender missed what was asked: its rate, or its time if that was farther off."""
    rate = Rate.read(case.rate)
    asked_pps = rate.pps(case.size)
    # A sender that keeps the rate and goes on for too long sends too many packets.
    longer = abs(row["elapsed_ns"] / 1e9 - case.seconds) / case.seconds
    off: float = max(abs(row["offered_pps"] - asked_pps) / asked_pps, longer)
    return 100.0 * off


def _passed(after: Any, before: Any, device: str, counter: str) -> int:
    return int(after["devices"][device][counter] - before["devices"][device][counter])


def _used_ns(before: Any, after: Any, names: list[str], what: str = "cpu_ns") -> int:
    return sum(after["daemons"][name][what] - before["daemons"][name][what] for name in names)


def _thread(contender: Contender, before: Any, after: Any, elapsed_ns: int) -> dict[str, Any]:
    """Processor time of the server's thread."""
    used = _used_ns(before, after, ["server"], "thread_ns")
    if not used:
        raise CountError(f"{contender.name}: its server has no thread of this name, or the thread did not run")
    return {"server_thread_ns": used, "server_thread_percent": 100.0 * used / elapsed_ns}


def _work(sensor: Agent, before: Any, after: Any, names: list[str], elapsed_ns: int) -> dict[str, Any]:
    """Processor time and memory of the daemons, and who disturbed the readers' core."""
    used = _used_ns(before, after, names)
    found = {
        "cpu_percent": 100.0 * used / elapsed_ns,
        "cpu_ns": used,
        "memory_kib": sum(after["daemons"][name]["memory_kib"] for name in names),
        # Neither a pool's nor a file's.
        "grown_kib": sum(after["daemons"][name]["own_kib"] - before["daemons"][name]["own_kib"] for name in names),
        "softnet_dropped": after["softnet_dropped"] - before["softnet_dropped"],
    }
    if "server" in names:
        found["server_cpu_percent"] = 100.0 * _used_ns(before, after, ["server"]) / elapsed_ns
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
    if contender.also_writes and await sensor.ask("take", name=contender.also_writes) is None:
        problems.append(f"there is no {contender.also_writes}")
    return {"file_bytes": size, "problems": problems}
