# SPDX-License-Identifier: MIT OR Apache-2.0
"""The figures of the WireCAP paper (IMC 2014) in virtual time; see --help.

`ringtap sim` runs our pool, engines.py models the others. Every number repeats to the packet on
every machine. Prints the tables, writes plots, and with --page puts the tables into a page
between its two marks.

Exit status: 0 if every counters balanced and every claim held, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ringtap_lab import root
from ringtap_lab.scenarios import engines, wirecap_report

#: Picoseconds between 64-byte packets at 10 Gbit/s.
GAP_PS = 67_200
#: Packets per second of a reader with x = 300 on the paper's machine.
READER_PPS = 38_844
RING = 1024
#: What the NIC itself holds: fitted to the paper's DNA, which loses 15 % of 6,000 packets.
FIFO = 4096
BURSTS = (1_000, 2_000, 5_000, 6_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
          1_000_000, 2_000_000, 5_000_000, 10_000_000)
#: Packets per second of our capture step, of a kernel that copies, and of a reader with x = 0.
CAPTURE_PPS, COPY_PPS, IDLE_PPS = 50_000_000, 2_000_000, 100_000_000
COPY_SLOTS = 10_240
THRESHOLDS = (None, 0, 20, 40, 60, 80, 95)


class Failed(Exception):
    """A run did not end as it must."""


@dataclass(frozen=True)
class Simulator:
    """Runs `ringtap sim`."""

    binary: Path

    def run(self, link: str, options: dict, *flags: str) -> dict:
        """One run; its JSON."""
        asked = "&".join(f"{key}={value}" for key, value in options.items())
        command = [str(self.binary), "sim", f"sim:{link}?{asked}", "--json", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
        found = json.loads(done.stdout)
        if not found["balanced"]:
            raise Failed(f"{' '.join(command)}: the counters do not balance: {done.stdout}")
        return found

    def pool(self, burst: int, chunks: int, packets: int, *flags: str, fifo: int = FIFO) -> float:
        """Loss of our pool of so many chunks of so many packets, one queue at 10 Gbit/s."""
        options = {"burst": burst, "chunks": chunks, "packets": packets, "ring": RING + fifo}
        return self.run("10Gbps", options, *flags)["loss"]


def ring(burst: int, reader_pps: int = READER_PPS, fifo: int = FIFO) -> float:
    """Loss of an engine whose reader works in the receive ring."""
    reader = engines.Station(RING + fifo, engines.service_ps(reader_pps))
    return engines.ring(range(0, burst * GAP_PS, GAP_PS), reader).loss


def copy(burst: int, reader_pps: int = READER_PPS) -> float:
    """Loss of an engine whose kernel copies packets from the ring into a second buffer."""
    kernel = engines.Station(RING + FIFO, engines.service_ps(COPY_PPS))
    reader = engines.Station(COPY_SLOTS, engines.service_ps(reader_pps))
    return engines.copy(range(0, burst * GAP_PS, GAP_PS), kernel, reader).loss


def every(function, values) -> list:
    """`function` of each value, two at a time, in order."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(function, values))


def no_load(sim: Simulator) -> list[dict]:
    """Figure 8: readers that only count."""
    def row(burst: int) -> dict:
        flags = ("--capture", f"{CAPTURE_PPS}pps", "--service", f"{IDLE_PPS}pps")
        return {"P": burst, "pool": sim.pool(burst, 100, 256, *flags),
                "ring": ring(burst, IDLE_PPS), "copy": copy(burst, IDLE_PPS)}
    return every(row, BURSTS)


def loaded(sim: Simulator) -> list[dict]:
    """Figure 9: readers with x = 300."""
    def row(burst: int) -> dict:
        return {
            "P": burst,
            "small": sim.pool(burst, 100, 256),
            "large": sim.pool(burst, 500, 256),
            "ring": ring(burst),
            "copy": copy(burst),
        }
    return every(row, BURSTS)


def product(sim: Simulator) -> list[dict]:
    """Figure 10: pools of the same R x M."""
    shapes = ((64, 400), (128, 200), (256, 100))
    def row(burst: int) -> dict:
        losses = {f"({m},{r})": sim.pool(burst, r, m) for m, r in shapes}
        return {"P": burst} | losses
    return every(row, [burst for burst in BURSTS if 10_000 <= burst <= 2_000_000])


def beside(sim: Simulator) -> list[dict]:
    """The paper's own numbers, with and without the NIC's buffer."""
    points = (
        ("WireCAP-B-(256,100)", 100_000, 71.0, lambda fifo: sim.pool(100_000, 100, 256, fifo=fifo)),
        ("WireCAP-B-(256,500)", 100_000, 0.0, lambda fifo: sim.pool(100_000, 500, 256, fifo=fifo)),
        ("DNA", 6_000, 15.0, lambda fifo: ring(6_000, fifo=fifo)),
    )
    return [
        {
            "name": name, "P": burst, "paper": paper,
            "ring_only": run(0), "with_fifo": run(FIFO),
        }
        for name, burst, paper, run in points
    ]


def absorption(sim: Simulator) -> list[dict]:
    """The longest burst without loss, against P_in * R * M / (P_in - P_p)."""
    def row(case: tuple[int, int, int, int]) -> dict:
        gbps, reader, chunks, packets = case
        arriving = gbps * 1e9 / 672
        def loses(burst: int) -> bool:
            options = {"burst": burst, "chunks": chunks, "packets": packets}
            return sim.run(f"{gbps}Gbps", options, "--service", f"{reader}pps")["loss"] > 0
        room = chunks * packets
        formula = arriving * room / (arriving - reader)
        with_ring = arriving * (room + RING) / (arriving - reader)
        fits, too_long = int(room * 0.9), int(with_ring * 1.1)
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            fits, too_long = (fits, middle) if loses(middle) else (middle, too_long)
        return {"gbps": gbps, "reader": reader, "room": room, "packets": packets,
                "formula": formula, "with_ring": with_ring, "longest": fits}
    cases = [(10, 38_844, 100, 256), (10, 38_844, 500, 256), (10, 1_000_000, 100, 256),
             (10, 10_000_000, 100, 256), (100, 10_000_000, 500, 256)]
    return every(row, cases)


def skewed(sim: Simulator, skew: str) -> list[dict]:
    """Four queues and readers, 95 % of what these can do: basic mode, and several thresholds."""
    options = {"queues": 4, "skew": skew, "flows": 400, "burst": 1_000_000, "chunks": 100,
               "packets": 64}
    def row(threshold: int | None) -> dict:
        flags = [] if threshold is None else ["--offload", str(threshold)]
        found = sim.run("190000pps", options, "--service", "50000pps", *flags)
        packets = found["delivered"] or 1
        return {
            "T": threshold,
            "loss": found["loss"],
            "offloaded": found["offloaded_packets"] / packets,
            "disordered": found["disordered_packets"] / packets,
            "max_chunks": max(lane["max_chunks"] for lane in found["lanes"]),
        }
    return every(row, list(THRESHOLDS))


def claims(found: dict) -> list[str]:
    """What the runs must show; those that do not hold."""
    wrong = []
    def must(holds: bool, text: str) -> None:
        if not holds:
            wrong.append(text)
    for row in found["no_load"]:
        must(row["pool"] == row["ring"] == 0, f"no load, P = {row['P']}: no loss but by copying")
    for row in found["product"]:
        losses = [value for key, value in row.items() if key != "P"]
        must(max(losses) - min(losses) < 0.005, f"P = {row['P']}: equal R x M loses equally")
    at = {row["P"]: row for row in found["loaded"]}
    must(at[100_000]["large"] == 0, "(256,500) loses none of 100,000")
    for row in found["absorption"]:
        off = abs(row["longest"] - row["with_ring"]) / row["with_ring"]
        must(off < 0.02, f"{row}: the longest burst is that of the formula")
    for name, rows in found["skew"].items():
        basic, advanced = rows[0], [row for row in rows[1:] if row["T"] <= 80]
        must(basic["loss"] > 0.3, f"{name}: basic mode loses more than 30 %")
        must(all(row["loss"] == 0 for row in advanced), f"{name}: advanced mode loses nothing")
    return wrong


def plotted(found: dict, folder: Path) -> bool:
    """Draws the plots, if that can be done here."""
    try:
        from ringtap_lab.scenarios import wirecap_plots
    except ImportError as error:
        print(f"figures: no plots: {error}: install python3-matplotlib", file=sys.stderr)
        return False
    for file in wirecap_plots.draw(found, folder):
        print(f"figures: {file}")
    return True


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ringtap", type=Path, default=root.ringtap())
    parser.add_argument("--plots", type=Path, help="folder for PNG and SVG")
    parser.add_argument("--page", type=Path, help="page whose tables are to be replaced")
    arguments = parser.parse_args(words)
    sim = Simulator(arguments.ringtap)
    try:
        found = {
            "beside": beside(sim), "no_load": no_load(sim), "loaded": loaded(sim),
            "product": product(sim), "absorption": absorption(sim),
            "skew": {name: skewed(sim, name) for name in ("7:1:1:1", "elephant:60")},
        }
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        print(f"figures: {error}", file=sys.stderr)
        return 1
    text = wirecap_report.tables(found)
    print(text)
    if arguments.page:
        wirecap_report.replace(arguments.page, text)
    if arguments.plots and not plotted(found, arguments.plots):
        return 1
    wrong = claims(found)
    for text in wrong:
        print(f"figures: does not hold: {text}", file=sys.stderr)
    return 1 if wrong else 0
