# SPDX-License-Identifier: MIT OR Apache-2.0
"""Experiments in virtual time: `ringtap sim` runs our pool, models stand for the others.

Every number repeats to the packet on every machine.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ringtap_lab.papers import models

Row = dict[str, Any]
T = TypeVar("T")

#: Bytes of a frame on the wire besides its own: preamble and gap.
WIRE_BYTES = 20
#: Packets per second of a reader with x = 300 on the WireCAP paper's machine, the default of `ringtap sim`.
READER_PPS = 38_844
RING = 1024


class SimulationError(Exception):
    """A run did not end as it must."""


@dataclass(frozen=True)
class Simulator:
    """Runs `ringtap sim`."""

    binary: Path

    def run(self, link: str, options: dict[str, Any], *flags: str) -> dict[str, Any]:
        """One run; its JSON."""
        asked = "&".join(f"{key}={value}" for key, value in options.items())
        command = [str(self.binary), "sim", f"sim:{link}?{asked}", "--json", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise SimulationError(f"{' '.join(command)}: {done.stderr.strip()}")
        found: dict[str, Any] = json.loads(done.stdout)
        if not found["balanced"]:
            raise SimulationError(f"{' '.join(command)}: the counters do not balance: {done.stdout}")
        return found


def every(function: Callable[[T], list[Row]], values: Iterable[T]) -> list[Row]:
    """The rows of each value, two at a time, in order."""
    with ThreadPoolExecutor(2) as pool:
        return [row for rows in pool.map(function, values) for row in rows]


def bursts(
    sim: Simulator, burst: list[int], pools: list[list[int]], engines: list[str], nic: int = 0,
    capture_pps: int | None = None, reader_pps: int | None = None, size: int = 64, gbps: int = 10,
) -> list[Row]:  # fmt: skip
    """Loss of bursts of P packets: of pools of R chunks of M packets, given as [M, R], and of models."""
    known = models.load_all()
    gap_ps = (size + WIRE_BYTES) * 8 * 1000 // gbps
    rates = {"--capture": capture_pps, "--service": reader_pps}
    flags = [word for flag, pps in rates.items() if pps for word in (flag, f"{pps}pps")]

    def rows(packets: int) -> list[Row]:
        found = []
        for m, r in pools:
            options = {"burst": packets, "chunks": r, "packets": m, "ring": RING + nic, "size": size}
            lost = sim.run(f"{gbps}Gbps", options, *flags)["loss"]
            found.append({"series": f"Ringtap ({m},{r})", "kind": "ours", "P": packets, "loss_percent": 100.0 * lost})
        for name in engines:
            lost = known[name].loss_percent(packets, gap_ps, reader_pps or READER_PPS)
            found.append({"series": f"{name} (model)", "kind": "model", "P": packets, "loss_percent": lost})
        return [{**row, "nic": nic, "size": size} for row in found]

    return every(rows, burst)


def line(engines: list[str], size: list[int], packets: int, gbps: int = 10) -> list[Row]:
    """Loss of models at a full link, at readers that only count."""
    known = models.load_all()
    return [
        {"series": f"{name} (model)", "kind": "model", "size": one, "rate": "a full link", "offered": packets,
         "loss_percent": known[name].loss_percent(packets, (one + WIRE_BYTES) * 8 * 1000 // gbps)}
        for name in engines
        for one in size
    ]  # fmt: skip


def absorption(sim: Simulator, cases: list[list[int]]) -> list[Row]:
    """The longest burst without loss, against P_in * R * M / (P_in - P_p); cases are [Gbit/s, P_p, R, M]."""

    def rows(case: list[int]) -> list[Row]:
        gbps, reader, chunks, packets = case
        arriving = gbps * 1e9 / 672

        def loses(burst: int) -> bool:
            options = {"burst": burst, "chunks": chunks, "packets": packets}
            return float(sim.run(f"{gbps}Gbps", options, "--service", f"{reader}pps")["loss"]) > 0

        room = chunks * packets
        formula, with_ring = (arriving * places / (arriving - reader) for places in (room, room + RING))
        fits, too_long = int(room * 0.9), int(with_ring * 1.1)
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            fits, too_long = (fits, middle) if loses(middle) else (middle, too_long)
        return [{"series": f"{gbps} Gbit/s, {reader:,}/s", "kind": "ours", "room": room, "formula": formula,
                 "with_ring": with_ring, "longest": fits}]  # fmt: skip

    return every(rows, cases)


def skew(sim: Simulator, skews: list[str], thresholds: list[int]) -> list[Row]:
    """Four queues and readers, 95 % of what these can do: basic mode, and several thresholds."""

    def rows(case: tuple[str, int | None]) -> list[Row]:
        name, threshold = case
        options = {"queues": 4, "skew": name, "flows": 400, "burst": 1_000_000, "chunks": 100, "packets": 64}
        flags = [] if threshold is None else ["--offload", str(threshold)]
        found = sim.run("190000pps", options, "--service", "50000pps", *flags)
        share = 100.0 / (found["delivered"] or 1)
        mode = "basic" if threshold is None else f"T = {threshold} %"
        return [{"series": name, "kind": "ours", "mode": mode, "T": -1 if threshold is None else threshold,
                 "loss_percent": 100.0 * found["loss"], "offloaded_percent": share * found["offloaded_packets"],
                 "disordered_percent": share * found["disordered_packets"],
                 "most_chunks": max(one["max_chunks"] for one in found["lanes"])}]  # fmt: skip

    return every(rows, [(name, one) for name in skews for one in (None, *thresholds)])


EXPERIMENTS: dict[str, Callable[..., list[Row]]] = {"bursts": bursts, "absorption": absorption, "skew": skew}
