# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command `bench`: all batteries of the project's figures in one run, and the page of their aims.

A battery that was measured as a whole replaces its record in bench/results/latest, or vm-latest if it has virtual
machines, and latest.md or vm-latest.md is made of all records there. Exit status: 0 if every account agreed (aims may
be missed), 1 if not, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import shutil
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from ringtap_lab import root
from ringtap_lab.command import FAULTS, above_zero, say
from ringtap_lab.formatters import tables
from ringtap_lab.formatters.summary import entries, machine_lines
from ringtap_lab.manager import aims, battery, contender, inventory, network, programs, sandbox
from ringtap_lab.manager.battery import Battery
from ringtap_lab.manager.contender import Contender
from ringtap_lab.manager.record import Record, give_to_user
from ringtap_lab.manager.runner import Runner

#: In the order in which they are measured and shown.
BATTERIES = ("capture", "host", "host-sends", "af-xdp", "record", "readers", "filters", "programs", "hub", "idle",
             "latency", "pacing", "pool", "forward", "probe-live", "probe-file", "probe-kernel", "opening", "rules",
             "cutoff", "record-index", "python", "parquet", "find")  # fmt: skip
#: Only measured if they are named; with a page of their own.
VM_BATTERIES = ("vm-rates", "vm-line", "vm-costs")
EVERY = (*BATTERIES, *VM_BATTERIES)
#: A rough run: repetitions, seconds of a trial, and files of a folder.
QUICK, QUICK_S, QUICK_FILES = 1, 0.7, 8
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
#: Columns and rows of the README's table.
SHOWN, COUNTS = ("ringtap hub", "AF_PACKET", "tcpdump"), (1, 4, 8, 16)


def chosen(only: list[str], known: dict[str, Contender]) -> list[Battery]:
    """The batteries that `only` names, or all. Of a contender that it names: its batteries, reduced to
    this contender and the floor with which its figures are compared."""
    every = [battery.load(battery.FOLDER / f"{name}.toml", known) for name in EVERY]
    names = {case.contender for one in every for case, _ in one.cases}
    wrong = [name for name in only if name not in (*EVERY, *names)]
    if wrong:
        raise inventory.InventoryError(f"--only: there is no {wrong[0]!r}; there are {', '.join([*EVERY, *names])}")
    found = [one for one in every if one.name in (only or BATTERIES)]
    for one in every:
        cases = tuple((case, count) for case, count in one.cases if case.contender in only)
        if cases and one not in found:
            baselines = tuple(it for it in one.cases if it[0].contender == aims.FLOOR and it not in cases)
            found.append(replace(one, cases=baselines + cases))
    return found


def changed(one: Battery, asked: argparse.Namespace) -> Battery:
    """A battery with the repetitions and seconds that the user wants."""
    quick = (QUICK, QUICK_S) if asked.quick else (None, math.inf)
    found = battery.changed(one, asked.repetitions or quick[0], most_s=asked.seconds or quick[1])
    files = tuple(
        replace(it, parameters={**it.parameters, "files": min(it.parameters["files"], QUICK_FILES)})
        if asked.quick and "files" in it.parameters else it for it in one.files
    )  # fmt: skip
    return replace(found, files=files)


async def measure(one: Battery, hosts: inventory.Inventory, known: dict[str, Contender], folder: Path) -> int:
    """Measures a battery; gives the number of rows at fault."""
    runner = Runner(one, hosts, known, lambda text: say(f"{one.name}  {text}"))
    async with AsyncExitStack() as stack:
        bench = await runner.connect(stack)
        missing = await runner.missing(bench)
        for name, why in missing.items():
            say(f"{one.name}  {name}: {why}")
        head = await runner.head(bench, missing)
        made = Record.create(folder, one.name, head)
        faults = await runner.run(bench, made, missing)
    shutil.rmtree(folder / one.name, ignore_errors=True)
    made.folder.rename(folder / one.name)
    return faults


def page(folder: Path) -> str:
    """All records of a folder as one page: first the aims, then each record."""
    records = [Record(folder / name) for name in EVERY if (folder / name).exists()]
    parts, wanted = [], []
    for one in records:
        head, rows = one.head(), one.rows()
        # Of an aim that has changed since, the present form.
        head |= {"text": (battery.FOLDER / f"{head['battery']}.toml").read_text()}
        wanted += [[f"[{head['battery']}](#{head['battery']})", *line] for line in tables.aims_of(head, rows)[1:]]
        lines = [f"## {head['battery']}\n", f"{head['title']}. {head['date']}, host {head['host']}."]
        lines += ["- " + line for line in machine_lines(head)[:1]]
        parts += [*lines, "", tables.body(head, rows)]
    told = tables.grid([["", *aims.HEADING], *wanted], left=5)
    begin = "# Benchmark\n\nMade by `make bench` or `make bench-vm`; each record has its own date.\n"
    return "\n".join([begin, "## Aims\n", told, "", *parts, "## Method\n", tables.METHOD])


def readme_part(record: Record) -> str:
    """The README's table of a record of the battery `readers`, and where it was measured."""
    found = {(one.contender, one.case["readers"]): one for one in entries(record.rows())}
    table = [["Mpps without loss", *SHOWN]]
    for count in COUNTS:
        cells = []
        for name in SHOWN:
            entry = found.get((name, count))
            spread = entry.spread("lossless_pps") if entry else None
            limited = any(row.get("limited") for row in entry.good) if entry else False
            cells.append(f"{spread[0] / 1e6:.2f}{' *' * limited}" if spread else "–")
        table.append([f"{count} reader{'s' if count > 1 else ''}", *cells])
    head = record.head()
    facts, *_ = head["machines"].values()
    machine = f"{facts['cpu']}, {facts['cores']} cores{' (virtual)' * bool(facts['virtual'])}, Linux {facts['kernel']}"
    return f"{tables.grid(table)}\n\n{head['date']}; {machine}.\n"


def refresh(readme: Path, part: str, markers: tuple[str, str] = (BEGIN, END)) -> None:
    """Puts `part` between two markers of the README; raises ValueError if it has not exactly one of each, in order."""
    text = readme.read_text()
    begin, end = markers
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended or begin in rest or end in after:
        raise ValueError(f"{readme}: wants one {begin} and then one {end}")
    readme.write_text(f"{before}{begin}\n{part}\n{end}{after}")


def inside(wanted: list[Battery], hosts: inventory.Inventory, known: dict[str, Contender], folders: dict[str, Path]
           ) -> int:  # fmt: skip
    """The whole run, inside the sandbox; gives the exit status."""
    faults = 0
    network.make(hosts)
    for one in wanted:
        try:
            faults += asyncio.run(measure(one, hosts, known, folders[one.name]))
        except FAULTS as error:
            # One battery that cannot be measured must not hide the others' figures.
            faults += 1
            say(f"bench: {one.name}: {error}")
            continue
        record = Record(folders[one.name] / one.name)
        say("\n" + tables.markdown(record.head(), record.rows()))
    for folder in set(folders.values()):
        path = folder.with_suffix(".md")
        path.write_text(page(folder))
        give_to_user(path)
        say(f"bench: wrote {path}, of the records in {folder}")
    return 1 if faults else 0


def main(words: list[str]) -> int:
    """Runs what the command line asks for; gives the exit status."""
    known = contender.load_all([contender.FOLDER])
    parser = argparse.ArgumentParser(prog="ringtap-lab bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", metavar="NAME,...", default="",
                        help=f"contenders, or batteries: {', '.join(EVERY)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a rough run, one repetition of everything")
    parser.add_argument("--repetitions", type=above_zero(int), metavar="N", help="of all cases")
    parser.add_argument("--seconds", type=above_zero(float), metavar="N", help="traffic in one trial, at most")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the records go")
    parser.add_argument("--target", type=Path, metavar="DIR", help="cargo's target folder")
    parser.add_argument("--readme", action="store_true", help="measure nothing: stored result into README.md")
    asked = parser.parse_args(words)
    try:
        if asked.readme:
            refresh(root.ROOT / "README.md", readme_part(Record((asked.out or root.RESULTS) / "latest" / "readers")))
            return 0
        wanted = [changed(one, asked) for one in chosen([one for one in asked.only.split(",") if one], known)]
        if os.geteuid() != 0 or (os.cpu_count() or 1) < 2:
            raise inventory.InventoryError("needs root, for network namespaces, and two cores")
        target = (asked.target or root.target()).resolve()
        hosts = inventory.local(programs.here(target / "release" / "ringtap", say))
    except (*FAULTS, ValueError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    whole = {one.name: one == battery.load(battery.FOLDER / f"{one.name}.toml", known) for one in wanted}
    folders = {name: (asked.out or (root.RESULTS if whole[name] else target / "bench")).resolve()
               / ("vm-latest" if name in VM_BATTERIES else "latest") for name in whole}  # fmt: skip
    return sandbox.run_inside(lambda: inside(wanted, hosts, known, folders))
