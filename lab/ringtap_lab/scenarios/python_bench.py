# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `python`: packets in Python, live from a hub beside `ringtap count`, and from files beside scapy and
pyshark.

- Live: the highest rate of 64-byte packets without loss, hub and reader on one core.
- Files: packets a second, from opening the file to the last packet, each program on one core.

The programs are `python_reader.py`, which adds up the lengths of all packets: a sum that differs is a fault.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import figures, parse, readers, tables
from ringtap_lab.scenarios.contenders import TASKSET, Contender
from ringtap_lab.scenarios.flows import small_packets
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import ToolError

READER = Path(__file__).resolve().parent / "python_reader.py"
#: Bytes of a 64-byte packet in a buffer, without the frame check sequence.
LENGTH = 60
FLOWS = 1 << 16
#: Packets of the file that a program reads: some seconds of each.
READ = {"numpy": 4_000_000, "arrow": 4_000_000, "packets": 2_000_000, "scapy": 20_000, "pyshark": 1_000}
TIMEOUT_SECONDS = 300


COUNT, NUMPY, ARROW, PACKETS = LIVE = (
    "ringtap count", "batches, numpy()", "batches, arrow(headers=True)", "packet by packet",
)  # fmt: skip
_PYTHON = TASKSET + f"{{python}} -P {READER} "
FILES = [
    Contender(kind, _PYTHON + f"{kind} {{file}} {count}", parse.ringtap, "nothing")
    for kind, count in READ.items()
]


def seconds(run: Run) -> float:
    """About how long it takes."""
    return readers.searches_seconds(run, len(LIVE)) + 5 * len(FILES) * run.settings.crowd_rounds


def run(run: Run) -> dict:
    """Gives the lossless rates live, and the rates from a file."""
    live = readers.compare(run, "python", dict.fromkeys(LIVE, (1,)))
    file = sandbox.SCRATCH / "small.pcap"
    small_packets(file, max(READ.values()))
    files = run.by_turns(
        run.settings.crowd_rounds, FILES, lambda one: _from_file(run, one, file),
        lambda name, row: f"python  from a file  {name} {row['pps'] / 1e6:9.4f} Mpps", ("pps",),
    )  # fmt: skip
    file.unlink()
    return {"live": live, "files": files}


def _from_file(run: Run, one: Contender, file: Path) -> dict:
    command = run.programs.fill(one.command, file=file)
    done = subprocess.run(
        shlex.split(command), capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
    )
    if done.returncode != 0:
        raise ToolError(f"{command}: exit code {done.returncode}: {done.stderr.strip()[-600:]}")
    found = parse.last_json(done.stdout, "read", one.name)
    wanted = READ[one.name]
    # A batch is read to its end.
    right = wanted <= found["read"] <= max(READ.values()) and found["bytes"] == LENGTH * found["read"]
    problems = [] if right else [f"read {found}, wanted {wanted} packets of {LENGTH} bytes"]
    return {"pps": found["read"] / found["seconds"], "problems": problems, "output": done.stdout}


def table(found: dict) -> str:
    """Both as tables."""
    files = [
        [name, tables.figure(entry["summary"].get("pps"), 4, 1e-6)]
        for name, entry in found["files"].items()
    ]
    return tables.crowds(found["live"]) + "\n" + tables.table(["from a file", "Mpps"], files)


def live_ratio(one: str) -> Callable[[dict], float | None]:
    """Lossless rate against that of `ringtap count`."""
    return lambda result: readers.ratio(
        {"live": result.get("python", {}).get("live", {})}, "live", (one, 1), (COUNT, 1)
    )


def against(other: str) -> Callable[[dict], float | None]:
    """Rate of `arrow(headers=True)` from a file against that of another package."""

    def figure(result: dict) -> float | None:
        found = result.get("python", {}).get("files", {})
        rows = [
            [row for row in found.get(name, {}).get("rounds", []) if not row["problems"]]
            for name in ("arrow", other)
        ]
        ratios = figures.ratios(*rows, "pps")
        return figures.spread(ratios)["median"] if ratios else None

    return figure


def reader_ns(result: dict, one: str) -> float | None:
    """Median of the reader's processor time for a packet, over all trials without loss."""
    found = {"live": result.get("python", {}).get("live", {})}
    rounds = readers.rounds_of(found, "live", one, 1)
    times = [row["reader_ns"] for each in rounds for row in each.get("trials", []) if row["lost"] == 0]
    return figures.spread(times)["median"] if times else None


def times(one: str) -> Callable[[dict], str]:
    """Processor time of this reader and of `ringtap count`, in words."""

    def words(result: dict) -> str:
        pair = [reader_ns(result, each) for each in (one, COUNT)]
        return "" if None in pair else "processor time {:.0f} and {:.0f} ns a packet".format(*pair)

    return words


def packets_mpps(result: dict) -> float | None:
    """Median rate of iterating packet by packet, from a file."""
    entry = result.get("python", {}).get("files", {}).get("packets", {})
    rate = entry.get("summary", {}).get("pps")
    return rate["median"] / 1e6 if rate else None
