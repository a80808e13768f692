# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares Ringtap with other capture programs on this machine, in one run; see --help.

Exit status: 0 if every measurement's accounts agreed (goals may be missed), 1 if not, 130 if
interrupted.
"""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ringtap_lab import root
from ringtap_lab.manager import sandbox
from ringtap_lab.root import RESULTS, ROOT
from ringtap_lab.scenarios import (
    capture,
    contenders,
    distance,
    filters,
    flows,
    forward,
    hub,
    meter,
    opening,
    pacing,
    placement,
    pool,
    python_bench,
    questions,
    quiet,
    readers,
    record,
    report,
    result,
    shunting,
    simulated,
    tables,
)
from ringtap_lab.scenarios import programs as libpcap_programs
from ringtap_lab.scenarios.options import parse_arguments, settings
from ringtap_lab.scenarios.preflight import unable
from ringtap_lab.scenarios.run import Run

HERE = Path(__file__).resolve().parent



@dataclass(frozen=True)
class Scenario:
    """One kind of measurement."""

    name: str
    contenders: list[contenders.Contender]
    #: About how long it takes, and what does it.
    seconds: Callable[[Run], float]
    run: Callable[[Run], dict]
    #: What it needs of our own programs.
    needs: tuple[str, ...] = ("ringtap",)


SCENARIOS = [
    Scenario("capture", capture.CONTENDERS, capture.seconds, capture.run, ("ringtap", "floor")),
    # Without its example this one is a fault in the result; the others do not wait for it.
    Scenario("pool", [], pool.seconds, pool.run, ()),
    Scenario("sim", [], simulated.seconds, simulated.run, ()),
    Scenario("record", record.RECORD.contenders, record.RECORD.seconds, record.RECORD.run),
    Scenario("af-xdp", record.AF_XDP.contenders, record.AF_XDP.seconds, record.AF_XDP.run),
    Scenario("idle", contenders.IDLE, quiet.idle_seconds, quiet.idle),
    Scenario("pacing", [], pacing.seconds, pacing.run, ("ringtap", "floor")),
    Scenario("low-rate", quiet.LOW_RATE, quiet.low_rate_seconds, quiet.low_rate),
    Scenario("latency", [], distance.latency_seconds, distance.latency),
    Scenario("distance", [], distance.distance_seconds, distance.distance),
    Scenario("readers", [], readers.seconds, readers.run),
    Scenario("filters", [], filters.seconds, filters.run, ("ringtap", "floor")),
    Scenario("shunting", [], shunting.seconds, shunting.run),
    Scenario("forward", [], forward.seconds, forward.run, ("ringtap", "floor")),
    Scenario("placement", [], placement.seconds, placement.run),
    Scenario("probe-flows", flows.LIVE, flows.seconds, flows.run),
    Scenario("probe-kernel", [], meter.seconds, meter.run, ("ringtap", "floor")),
    Scenario("hub-cpu", [], hub.cpu_seconds, hub.cpu),
    Scenario("wake", [], hub.wake_seconds, hub.wake),
    Scenario(
        "programs", [], libpcap_programs.seconds, libpcap_programs.run, ("ringtap", "library")
    ),
    Scenario("opening", [], opening.seconds, opening.run, ("ringtap", "library")),
    Scenario("python", [], python_bench.seconds, python_bench.run),
    Scenario("parquet", [], questions.parquet_seconds, questions.parquet),
    Scenario("index", [], questions.index_seconds, questions.index),
    Scenario("find", [], questions.find_seconds, questions.find),
    Scenario("record-index", [], questions.record_seconds, questions.record),
]


def names() -> list[str]:
    """All that `--only` may hold."""
    return [one.name for one in SCENARIOS] + [
        contender.name for one in SCENARIOS for contender in one.contenders
    ]


def chosen(only: tuple[str, ...]) -> list[Scenario]:
    """Scenarios that are named; else those that a named contender takes part in; else all."""
    by_name = [one for one in SCENARIOS if one.name in only]
    by_contender = [
        one for one in SCENARIOS if any(contender.name in only for contender in one.contenders)
    ]
    return by_name or by_contender or SCENARIOS


def programs(target: Path) -> contenders.Programs:
    """Where our own programs are, once built."""
    release = target / "release"
    return contenders.Programs(
        ringtap=release / "ringtap",
        floor=release / "examples" / "xdp_floor",
        pool_bench=release / "examples" / "pool_bench",
        sim_bench=release / "examples" / "sim_bench",
        pcap_latency=sandbox.SCRATCH / "pcap_latency",
        packet_reader=sandbox.SCRATCH / "packet_reader",
        library=release / "libringtap_pcap.so",
        python=target / "python-bench" / "bin" / "python",
    )


def compile_readers(run: Run) -> None:
    """Builds the lab's own readers; without a compiler the comparison goes without them."""
    opener = sandbox.SCRATCH / "pcap_open"
    for program in (run.programs.pcap_latency, run.programs.packet_reader, opener):
        source = HERE / f"{program.name}.c"
        command = f"cc -O2 -Wall -Wextra -o {program} {source} -lpcap"
        try:
            subprocess.run(shlex.split(command), check=True, capture_output=True, text=True)
        except (OSError, subprocess.SubprocessError) as error:
            reason = getattr(error, "stderr", None) or error
            run.say(f"bench: no {program.name} to compare with: `{command}` failed: {reason}")


def measure(run: Run, command: str, folder: Path) -> int:
    """The whole run, inside the sandbox; gives the exit status."""
    scenarios = chosen(run.settings.only)
    minutes = math.ceil(sum(one.seconds(run) for one in scenarios) / 60)
    run.say(
        f"bench: {', '.join(one.name for one in scenarios)}: about {minutes} min, Ctrl-C ends it"
        f" and leaves nothing; first waits up to {result.PATIENCE_SECONDS} s for idle cores"
    )
    sandbox.make_veth()
    compile_readers(run)
    for one in run.absent():
        run.say(f"bench: {one} is not installed: its rows will say so")
    found = result.head(run, command, ROOT)
    for one in scenarios:
        found[one.name] = one.run(run)
    result.finish(found, run)
    run.say("\n" + tables.capture(found["capture"]) if "capture" in found else "")
    run.say(tables.goals(found["goals"]))
    for note in found["notes"]:
        run.say(f"note: {note}")
    for path in result.write(found, folder):
        run.say(f"bench: wrote {path}")
    return 1 if run.problems else 0


def show_in_readme(folder: Path) -> int:
    """Puts the newest stored result with many readers into the README; gives the exit status."""
    paths = [folder / "latest.json", folder / "readers" / "latest.json"]
    try:
        stored = [json.loads(path.read_text()) for path in paths if path.exists()]
        newest = max(
            (one for one in stored if "readers" in one), key=lambda one: one["date"], default=None
        )
        if newest is None:
            return refuse(f"README.md stays as it is: no result with many readers in {folder}")
        report.refresh(ROOT / "README.md", report.readme_part(newest))
    except (OSError, ValueError) as error:
        return refuse(f"README.md stays as it is: {error}")
    print(f"bench: README.md shows the result of {newest['date']}")
    return 0


def refuse(text: str) -> int:
    """Says why nothing is measured."""
    print(f"bench: {text}", file=sys.stderr)
    return 2


def main(words: list[str]) -> int:
    """Runs what the command line asks for; gives the exit status."""
    asked = parse_arguments(words, names())
    if asked.readme:
        return show_in_readme(asked.out or RESULTS)
    target = (asked.target or root.target()).resolve()
    run = Run(settings(asked), programs(target))
    needs = sorted({need for one in chosen(run.settings.only) for need in one.needs})
    needed = [getattr(run.programs, need) for need in needs]
    if why := unable("ringtap-lab bench", "bench", needed):
        return refuse(why)
    folder = asked.out or (RESULTS if run.settings.is_full() else target / "bench")
    command = shlex.join(["ringtap-lab", "bench", *words])
    return sandbox.run_inside(lambda: measure(run, command, folder.resolve()))
