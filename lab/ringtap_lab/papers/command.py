# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command `figures`: measures what the pages of published figures need, and writes the pages.

Each page is a TOML file beside this one: the paper's claim and numbers, which battery or simulation gives ours, and
the rules that judge the claim. Exit status: 0 if all pages were written, whatever they say.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from ringtap_lab import root
from ringtap_lab.command import records
from ringtap_lab.manager.record import HEAD, ROWS, RecordError, give_to_user
from ringtap_lab.papers import page, plot, sources, virtual
from ringtap_lab.papers.judge import PageError

HERE = Path(__file__).resolve().parent
PAGES = root.ROOT / "docs" / "figures"


def main(words: list[str]) -> int:
    """Runs the command; gives the exit status."""
    known = {path.stem: path for path in sorted(HERE.glob("*.toml"))}
    parser = argparse.ArgumentParser(prog="ringtap-lab figures", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"{', '.join(known)}; default: all")
    parser.add_argument("--stored", action="store_true", help="measure nothing: pages of what is stored")
    parser.add_argument("--ringtap", type=Path, default=root.ringtap(), help="the program (%(default)s)")
    parser.add_argument("--into", type=Path, default=PAGES, help="folder of the pages (%(default)s)")
    asked = parser.parse_args(words)
    if unknown := set(asked.pages) - set(known):
        parser.error(f"there is no page {', '.join(sorted(unknown))}")
    start = time.monotonic()
    asked.into.mkdir(parents=True, exist_ok=True)
    sim = virtual.Simulator(asked.ringtap.resolve())
    try:
        for name in asked.pages or known:
            wanted = tomllib.loads(known[name].read_text())
            if not asked.stored:
                measure(wanted, sim.binary)
            one = compose(known[name], wanted, sim, asked.into)
            _write(asked.into / f"{name}.md", one)
            print(f"figures: {page.first_line(one)}", flush=True)
    except (PageError, RecordError, virtual.SimulationError, OSError, subprocess.SubprocessError) as error:
        print(f"ringtap-lab figures: {error}", file=sys.stderr)
        return 1
    made = {name: (asked.into / f"{name}.md").read_text() for name in known if (asked.into / f"{name}.md").exists()}
    _write(asked.into / "README.md", page.index(made))
    print(f"figures: {len(made)} pages in {asked.into}, after {time.monotonic() - start:.0f} s")
    return 0


def compose(path: Path, wanted: dict[str, Any], sim: virtual.Simulator, folder: Path) -> str:
    """A page from stored and simulated data."""
    data = {key: sources.load(each, sim) for key, each in wanted["data"].items()}
    tables = {key: one.rows for key, one in data.items()}
    measured = [key for key, each in wanted["data"].items() if "battery" in each]
    tables |= {f"{key}, totals": sources.totals(tables[key]) for key in measured}
    source = f"lab/ringtap_lab/papers/{path.name}"
    missing: list[str] = []

    def draw(each: dict[str, Any]) -> Path | None:
        try:
            drawn = plot.draw(folder, tables, each)
        except ImportError:
            missing.append("no plots: install matplotlib")
            return None
        if drawn:
            give_to_user(drawn)
        return drawn

    found = page.make(wanted, source, tables, {key: one.made for key, one in data.items()}, draw)
    for line in dict.fromkeys(missing):
        print(f"figures: {line}", file=sys.stderr)
    return found


def measure(wanted: dict[str, Any], ringtap: Path) -> None:
    """Runs the batteries and programs of a page, and keeps their records with the results."""
    run = [sys.executable, "-m", "ringtap_lab"]
    for each in wanted["data"].values():
        if name := each.get("battery"):
            before = set(records().glob("*"))
            done = subprocess.run([*run, "run", name, "--ringtap", str(ringtap)], check=False)
            new = sorted(set(records().glob(f"*-{name}")) - before)
            if done.returncode not in (0, 1) or not new:
                raise PageError(f"battery {name}: exit code {done.returncode}")
            folder = sources.RECORDS / name
            folder.mkdir(parents=True, exist_ok=True)
            for file in (HEAD, ROWS):
                shutil.copy(new[-1] / file, folder / file)
                give_to_user(folder / file)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    give_to_user(path)
