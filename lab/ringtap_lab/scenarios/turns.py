# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenarios on the lab's own loop: their cases are measured by the manager's runner, inside the benchmark's sandbox."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack

from ringtap_lab.manager import contender, programs, sandbox
from ringtap_lab.manager.battery import Battery, Case
from ringtap_lab.manager.contender import Contender
from ringtap_lab.manager.inventory import Host, Inventory
from ringtap_lab.manager.link import LinkError, RequestError
from ringtap_lab.manager.record import Rows
from ringtap_lab.manager.runner import Runner
from ringtap_lab.scenarios import figures
from ringtap_lab.scenarios.contenders import READER_CPU, SENDER_CPU
from ringtap_lab.scenarios.run import Run

KNOWN = contender.load_all([contender.FOLDER])
SENDER, STAMPED, FROM_FILE = "ringtap send", "ringtap send, stamped", "ringtap send, file"


def named(*names: str) -> list[Contender]:
    """Contenders by name."""
    return [KNOWN[name] for name in names]


def paths(run: Run) -> dict[str, str]:
    """Programs that contenders name, where this run has them."""
    return {**programs.here(run.programs.ringtap, run.say), **_ours(run)}


def _ours(run: Run) -> dict[str, str]:
    return {name: str(getattr(run.programs, name)) for name in ("ringtap", "floor", "python")}


def missing(run: Run, one: Contender) -> str | None:
    """The program that a contender needs and this machine has not."""
    known = _ours(run) | {name: str(programs.reader(name)) for name in programs.READERS}
    absent = [need for need in one.needs if not shutil.which(known.get(need, need))]
    return absent[0] if absent else None


def measure(run: Run, title: str, cases: list[Case], rounds: int, sender: str = SENDER) -> dict[str, list[dict]]:
    """Measures cases by turns; gives the good rounds of each by the key of the case."""
    battery = Battery(title, title, sender, tuple((case, rounds) for case in cases), "")
    cpus = {"sender": SENDER_CPU, "reader": READER_CPU, "capture": READER_CPU}
    devices = {"out": sandbox.SENDER, "in": sandbox.CAPTURED}
    here = Host("here", ("injector", "sensor"), devices, cpus, programs=paths(run))
    runner = Runner(battery, Inventory((here,)), KNOWN, lambda text: run.say(f"{title}  {text}"))
    rows = Rows()

    async def work() -> None:
        async with AsyncExitStack() as stack:
            bench = await runner.connect(stack)
            absent = await runner.missing(bench)
            for name, why in absent.items():
                run.say(f"{title}: {name}: {why}")
            await runner.run(bench, rows, absent)

    try:
        asyncio.run(work())
    except (LinkError, RequestError) as error:
        run.problem(f"{title}: {error}")
    found: dict[str, list[dict]] = {case.key: [] for case in cases}
    for row in rows.rows():
        for problem in row["problems"]:
            run.problem(f"{row['case']['contender']}: {problem}")
        if not row["problems"]:
            found[row["key"]].append(_round(row))
    return found


def _round(row: dict) -> dict:
    """A row in the form of the benchmark's results."""
    kept = {key: value for key, value in row.items() if key not in ("key", "case", "group", "repetition", "readers")}
    for trial in kept.get("trials", []):
        trial.pop("readers", None)
    for rate in ("offered", "delivered"):
        if f"{rate}_pps" in kept:
            kept[f"{rate}_mpps"] = kept.pop(f"{rate}_pps") / 1e6
    return {"round": row["repetition"], **kept}


def entry(run: Run, one: Contender, rounds: list[dict], keys: tuple[str, ...]) -> dict:
    """What a result says of a contender: its rounds, and the spread of `keys`."""
    command = " ".join((rounds[0]["command"] if rounds else one.command).split())
    if one.server:
        command += "  # on: " + " ".join(one.server.command.split())
    return {
        "command": command, "note": one.note, "missing": missing(run, one),
        "rounds": rounds, "summary": figures.summary(rounds, keys),
    }  # fmt: skip


