# SPDX-License-Identifier: MIT OR Apache-2.0
"""Figures 6 to 9 of the Ksensor paper (ICN 2014), measured: what is captured and analysed, by rate.

An analysis of 1,000 or 25,000 loops for each packet, on one core or two, at 21 rates: in workers, in
the kernel, and an Adviser on libpcap (lab/ringtap_lab/scenarios/adviser.c). Each figure is a file of its own, so that figures
can be measured one by one; `ringtap-lab figures --stored` makes their page.

--repeat measures one point of each line many times instead, and each time a fixed loop of Python on both
cores. It prints the spreads: how much of a fall in a figure may be the machine's noise.

Exit status: 0 if every trial's account balanced, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ringtap_lab import root
from ringtap_lab.manager import sandbox
from ringtap_lab.root import ROOT
from ringtap_lab.scenarios import machine, parse
from ringtap_lab.scenarios.contenders import READER_CPU, SENDER_CPU, Programs
from ringtap_lab.scenarios.figures import spread
from ringtap_lab.scenarios.preflight import unable
from ringtap_lab.scenarios.tool import Tool, ToolError
from ringtap_lab.scenarios.trial import Traffic, send

#: The paper's rates, packets a second.
RATES = [50_000 + 72_500 * step for step in range(21)]
SECONDS, QUIET_SECONDS, SIZE, FLOWS = 0.6, 0.2, 64, 64
#: Interval between looks at whether the workers still work: the error of the time at which they end.
LOOK_SECONDS = 0.005
#: Small, so that little waits when the sender ends.
POOL = "2MiB"
LINES = ("workers", "kernel", "libpcap")
#: A fixed amount of work; the program prints the seconds that it took.
LOOPS = 6_000_000
CALIBRATION = f"import time; begun = time.perf_counter()\nfor _ in range({LOOPS}): pass\nprint(time.perf_counter() - begun)"

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Figure:
    """One of the paper's."""

    number: int
    loops: int
    cores: int

    @property
    def title(self) -> str:
        return f"Figure {self.number}: {self.loops:,} loops, {self.cores} core{'s' * (self.cores > 1)}"

    @property
    def senders(self) -> tuple[int, ...]:
        """CPUs that send; each also runs the receiving side of what it sends."""
        return (SENDER_CPU, READER_CPU)[: self.cores]

    @property
    def readers(self) -> str:
        """CPUs that read."""
        return ",".join(str(cpu) for cpu in (READER_CPU, SENDER_CPU)[: self.cores])


FIGURES = [Figure(6, 1_000, 1), Figure(7, 1_000, 2), Figure(8, 25_000, 1), Figure(9, 25_000, 2)]


def command(line: str, figure: Figure, ringtap: Path) -> tuple[str, str]:
    """The command of a line, and what it says when it is ready."""
    cpus = f"taskset -c {figure.readers} "
    if line == "libpcap":
        adviser = sandbox.SCRATCH / "adviser"
        return cpus + f"{adviser} {sandbox.CAPTURED} {figure.loops} {figure.cores}", "ready"
    config = sandbox.SCRATCH / f"{line}{figure.loops}.toml"
    config.write_text(
        f'[[analysis]]\nkind = "load"\nloops = {figure.loops}\nwhere = "{line}"\nevery = "1h"\n'
    )
    device = f"'tap:{sandbox.CAPTURED}?exclusive&mode=native&pool={POOL}'"
    words = f"{ringtap} probe -i {device} --workers {figure.cores} --config {config} --json"
    return cpus + words, "ringtap: probe of"


def counts(line: str, text: str) -> tuple[int, int, bool]:
    """Packets captured and analysed, and whether the account balances."""
    if line == "libpcap":
        found = parse.last_json(text, "analysed", "adviser")
        waits = found["captured"] - found["analysed"] - found["queue_full"]
        return found["captured"], found["analysed"], waits >= 0
    ledger = parse.last_json(text, "captured", "ringtap probe")
    if line == "kernel":
        kernel = ledger["kernel"]
        return kernel["seen"], kernel["analysed"], not any(kernel["skipped"].values())
    counters = parse.last_json(text, "offered", "ringtap probe")
    # What the tap copied into the pool and no worker took was captured in vain.
    captured = ledger["captured"] + counters["dropped"]["overrun"]
    return captured, ledger["analysed"], counters["balanced"]


def send_all(figure: Figure, rate: int, programs: Programs) -> tuple[float, float]:
    """Sends from all of the figure's CPUs; gives the rate that was sent, and the seconds."""
    each = Traffic(SIZE, f"{rate // figure.cores}pps", SECONDS, FLOWS)
    with ThreadPoolExecutor(figure.cores) as pool:
        done = list(pool.map(lambda cpu: send(programs, each, cpu), figure.senders))
    elapsed = max(sent.elapsed_ns for sent in done) / 1e9
    return sum(sent.packets for sent in done) / elapsed, elapsed


def trial(line: str, figure: Figure, rate: int, programs: Programs) -> dict:
    """One point of one line."""
    words, ready = command(line, figure, programs.ringtap)
    with Tool(words) as tool:
        tool.wait_ready(ready, "nothing")
        sent, elapsed = send_all(figure, rate, programs)
        if line == "workers":
            # What waited when the sender ended is analysed, too, and takes its time.
            elapsed += tool.wait_idle(QUIET_SECONDS, LOOK_SECONDS)
        captured, analysed, is_balanced = counts(line, text := tool.end())
    if line == "libpcap":
        # What waited when the sender ended was analysed, too, and took its time.
        elapsed = max(elapsed, parse.last_json(text, "busy_ns", "adviser")["busy_ns"] / 1e9)
    return {
        "rate": rate, "sent": sent, "captured": captured / elapsed, "analysed": analysed / elapsed,
        "in_vain": captured - analysed, "balanced": is_balanced,
    }  # fmt: skip


def measure(figure: Figure, programs: Programs, results: Path) -> int:
    """All points of one figure, into its file; gives the number of faults."""
    found: dict = {"date": machine.now(), "revision": machine.revision(ROOT), "machine": machine.facts()}
    found |= {line: [] for line in LINES}
    faults = 0
    for rate in RATES:
        for line in LINES:
            try:
                point = trial(line, figure, rate, programs)
            except (ToolError, parse.ReportError, subprocess.SubprocessError) as error:
                print(f"ksensor: {figure.title}, {line}, {rate}: {error}", file=sys.stderr)
                return faults + 1
            if not point["balanced"]:
                print(f"ksensor: {figure.title}, {line}, {rate}: the account does not balance")
            faults += not point["balanced"]
            found[line].append(point)
            print(
                f"figure {figure.number} {line:<8} {rate:>9,}/s: sent {point['sent']:>11,.0f}"
                f" captured {point['captured']:>11,.0f} analysed {point['analysed']:>11,.0f}",
                flush=True,
            )
    results.mkdir(parents=True, exist_ok=True)
    (results / f"figure{figure.number}.json").write_text(json.dumps(found, indent=1) + "\n")
    return faults


def calibrate(cpu: int) -> float:
    """Runs the fixed loop on a CPU; gives loops a second."""
    words = ["taskset", "-c", str(cpu), sys.executable, "-c", CALIBRATION]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return LOOPS / float(done.stdout)


def repeat(figure: Figure, rate: int, lines: list[str], times: int, programs: Programs) -> int:
    """The same point again and again; gives the number of faults."""
    found: dict[str, list[float]] = {}
    faults = 0
    for _ in range(times):
        for line in lines:
            point = trial(line, figure, rate, programs)
            faults += not point["balanced"]
            found.setdefault(line, []).append(point["analysed"])
        for cpu in (SENDER_CPU, READER_CPU):
            found.setdefault(f"loop on CPU {cpu}", []).append(calibrate(cpu))
    print(f"{figure.title}, {rate:,} offered, {times} times, a second:")
    for name, each in found.items():
        of = spread(each)
        print(
            f"{name:<15} median {of['median']:>12,.0f} most {of['max']:>12,.0f} least {of['min']:>12,.0f}"
            f" = {of['min'] / of['max']:.2f} of the most; all: {' '.join(f'{one:,.0f}' for one in each)}"
        )
    return faults


def inside(work: Callable[[], int]) -> int:
    """Prepares the sandbox and works in it; gives the exit status."""
    sandbox.make_veth()
    # A receive queue for each sending CPU.
    subprocess.run(["ethtool", "-L", sandbox.CAPTURED, "rx", "2", "tx", "2"], check=True)
    subprocess.run(["ethtool", "-L", sandbox.SENDER, "rx", "2", "tx", "2"], check=True)
    adviser = sandbox.SCRATCH / "adviser"
    build = ["cc", "-O2", "-Wall", "-Wextra", "-o", adviser, HERE / "adviser.c", "-lpcap"]
    subprocess.run(build, check=True)
    return min(1, work())


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ringtap", type=Path, default=root.ringtap())
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results/ksensor")
    parser.add_argument("--figure", type=int, action="append", help="6 to 9; default: all")
    parser.add_argument("--repeat", type=int, metavar="TIMES", help="one point of one figure, many times")
    parser.add_argument("--rate", type=int, default=RATES[-1], help="of the point; default: %(default)s")
    parser.add_argument("--line", choices=LINES, action="append", help="of the point; default: all")
    arguments = parser.parse_args(words)
    programs = Programs(arguments.ringtap.resolve())
    results = arguments.results.resolve()
    if why := unable("ringtap-lab ksensor", "figures", [programs.ringtap]):
        print(f"ksensor: {why}", file=sys.stderr)
        return 2
    asked = [one for one in FIGURES if one.number in (arguments.figure or range(6, 10))]
    lines = arguments.line or list(LINES)

    def work() -> int:
        if arguments.repeat:
            return repeat(asked[0], arguments.rate, lines, arguments.repeat, programs)
        return sum(measure(figure, programs, results) for figure in asked)

    return sandbox.run_inside(lambda: inside(work))
