# SPDX-License-Identifier: MIT OR Apache-2.0
"""The commands for batteries and records: `run`, `list`, `show`, `compare`, `verify`."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from ringtap_lab import root
from ringtap_lab.formatters import compare, files, tables
from ringtap_lab.manager import aims, battery, contender, inventory, network, programs, sandbox, verify
from ringtap_lab.manager.link import LinkError, RequestError
from ringtap_lab.manager.record import Record, RecordError
from ringtap_lab.manager.runner import Runner

N = TypeVar("N", int, float)
FAULTS = (inventory.InventoryError, LinkError, RequestError, RecordError)


def records() -> Path:
    """Where records are kept."""
    return root.target() / "lab" / "records"


def say(text: str) -> None:
    """Tells the user, at once."""
    print(text, flush=True)


def above_zero(kind: type[N]) -> Callable[[str], N]:
    """Reads a number above 0."""

    def read(text: str) -> N:
        value = kind(text)
        if not 0 < value < math.inf:
            raise ValueError
        return value

    read.__name__ = f"{kind.__name__} above 0"
    return read


def parser() -> argparse.ArgumentParser:
    """All words that the commands know."""
    words = argparse.ArgumentParser(prog="ringtap-lab")
    commands = words.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure a battery")
    run.add_argument("battery", help="name of a battery, or its TOML file")
    run.add_argument("--hosts", type=Path, metavar="FILE", help="inventory; this machine in namespaces if missing")
    run.add_argument("--resume", type=Path, metavar="RECORD", help="measure what an interrupted record lacks")
    run.add_argument("--repetitions", type=above_zero(int), metavar="N", help="of each case (as the battery says)")
    run.add_argument("--seconds", type=above_zero(float), metavar="N", help="of a trial (as the battery says)")
    run.add_argument("--ringtap", type=Path, metavar="PROGRAM", help=f"the program to measure ({root.ringtap()})")
    listing = commands.add_parser("list", help="batteries, contenders and records")
    show = commands.add_parser("show", help="a record as tables")
    show.add_argument("record", type=Path, help="folder of a record, or `last`")
    show.add_argument("--format", choices=sorted(files.FORMATS), help="write files of this format instead")
    both = commands.add_parser("compare", help="two records, with intervals")
    both.add_argument("records", type=Path, nargs=2, metavar="RECORD")
    check = commands.add_parser("verify", help="check a record that was submitted")
    check.add_argument("record", type=Path, metavar="RECORD")
    for one in (run, listing):
        one.add_argument("--contenders", type=Path, action="append", default=[], metavar="DIR",
                         help="folder with more contenders")  # fmt: skip
    for one in (run, listing, show):
        one.add_argument("--records", type=Path, default=records(), metavar="DIR")
    return words


def main(words: list[str]) -> int:
    """Runs a command; gives the exit status."""
    asked = parser().parse_args(words)
    command = {"run": _run, "list": _list, "show": _show, "compare": _compare, "verify": _verify}[asked.command]
    try:
        return command(asked)
    except FAULTS as error:
        print(f"ringtap-lab: {error}", file=sys.stderr)
        return 2


def _contenders(asked: argparse.Namespace) -> dict[str, contender.Contender]:
    return contender.load_all([contender.FOLDER, *asked.contenders])


def _run(asked: argparse.Namespace) -> int:
    known = _contenders(asked)
    path = Path(asked.battery)
    path = path if path.suffix == ".toml" else battery.FOLDER / f"{asked.battery}.toml"
    wanted = battery.changed(battery.load(path, known), asked.repetitions, asked.seconds)
    if asked.hosts:
        return asyncio.run(_measure(asked, Runner(wanted, inventory.load(asked.hosts), known, say)))
    if os.geteuid() != 0 or (os.cpu_count() or 1) < 2:
        raise inventory.InventoryError("needs root, for network namespaces, and two cores; or --hosts")
    hosts = inventory.local(programs.here(asked.ringtap, say))

    def inside() -> int:
        network.make(hosts)
        try:
            return asyncio.run(_measure(asked, Runner(wanted, hosts, known, say)))
        except FAULTS as error:
            print(f"ringtap-lab: {error}", file=sys.stderr)
            return 2

    return sandbox.run_inside(inside)


async def _measure(asked: argparse.Namespace, runner: Runner) -> int:
    async with AsyncExitStack() as stack:
        bench = await runner.connect(stack)
        missing = await runner.missing(bench)
        for name, why in missing.items():
            say(f"{name}: {why}")
        if asked.resume:
            record = Record(asked.resume)
            if record.head()["text"] != runner.battery.text:
                raise RecordError(f"{record.folder}: was made by another battery, or another version of it")
        else:
            head = await runner.head(bench, missing)
            record = Record.create(asked.records.resolve(), runner.battery.name, head)
        say(f"record: {record.folder}: each row is there at once; --resume goes on after an interruption")
        faults = await runner.run(bench, record, missing)
    say("\n" + tables.markdown(record.head(), record.rows()))
    for path in files.write_all(record, say):
        say(f"wrote {path}")
    broken = aims.broken(runner.battery.aims, record.rows())
    for text in broken:
        say(f"promise broken: {text}")
    return 1 if faults or broken else 0


def _list(asked: argparse.Namespace) -> int:
    known = _contenders(asked)
    say("batteries")
    for path in sorted(battery.FOLDER.glob("*.toml")):
        one = battery.load(path, known)
        turns = list(one.turns())
        say(f"  {one.name:<24} {one.title}: {len(turns)} turns, {sum(turn.seconds for turn in turns) / 60:.0f} min")
    say("contenders")
    for entry in known.values():
        say(f"  {entry.name:<30} {entry.kind}; {entry.note or entry.command.split()[0]}; {entry.install}")
    say(f"records in {asked.records}")
    for folder in sorted(asked.records.glob("*")):
        say(f"  {folder.name}: {len(Record(folder).rows())} rows")
    return 0


def _show(asked: argparse.Namespace) -> int:
    folder = asked.record
    if str(folder) == "last":
        folder = max(asked.records.glob("*"), default=asked.records / "none")
    record = Record(folder)
    if asked.format:
        for path in files.FORMATS[asked.format](record, say):
            say(f"wrote {path}")
    else:
        say(tables.markdown(record.head(), record.rows()))
    return 0


def _compare(asked: argparse.Namespace) -> int:
    first, second = (Record(folder) for folder in asked.records)
    say(compare.text(first, second))
    return 0


def _verify(asked: argparse.Namespace) -> int:
    faults, notes = verify.faults(asked.record)
    for line in [*notes, *(f"fault: {one}" for one in faults)]:
        say(line)
    say(f"{asked.record}: {f'{len(faults)} faults' if faults else 'complete, and its accounts agree'}")
    return 1 if faults else 0
