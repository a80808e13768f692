# SPDX-License-Identifier: MIT OR Apache-2.0
"""A plan: what a link needs, what carries the answer, and what is extrapolated.

Invariants
- Whole numbers (queues, cores, chunks, disks) are rounded up last; what carries the answer is found before that.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from ringtap_lab.planner.costs import Costs
from ringtap_lab.planner.quantities import Mix, Rate, slot

CHUNK = 65_536
#: Header of a chunk, and bytes of a pcapng block around a packet (docs/sizing.md).
CHUNK_HEADER, BLOCK = 64, 44
#: Flows of the measurement behind `probe_ns`, and the most that were measured.
PROBED, MOST_PROBED = 65_536, 10_000_000
#: How much an input changes when it is tried whether it carries the answer.
CHANGE = 1.1
INPUTS = {"frame": "mean frame (--mix)", "pause": "pause of a reader (--pause)", "headroom": "headroom (--headroom)",
          "work": "work of a reader (--work)"}  # fmt: skip
#: Results whose carrying inputs are told.
RESULTS = {"cores": "cores", "pool_bytes": "pool", "memory_bytes": "memory", "disk_bytes": "disk"}


@dataclass(frozen=True)
class Ask:
    """What is asked for."""

    rate: Rate
    mix: Mix
    readers: int
    flows: float
    keep_s: float
    pause_s: float
    headroom: float
    work_ns: float
    snap: int

    @property
    def consumers(self) -> int:
        """Readers of the pool, with the probe and the recorder."""
        return self.readers + bool(self.flows) + bool(self.keep_s)

    def inputs(self) -> dict[str, float]:
        """What the user assumes."""
        return {"frame": self.mix.mean(), "pause": self.pause_s, "headroom": self.headroom, "work": self.work_ns}


def needs(ask: Ask, given: dict[str, float]) -> dict[str, float]:
    """Everything before it is rounded, of the costs and the inputs in `given`."""
    grown = given["frame"] / ask.mix.mean()
    pps = ask.rate.pps(given["frame"])
    captured, in_pool = ask.mix.captured(ask.snap) * grown, ask.mix.in_pool(ask.snap) * grown
    busy = pps * given["headroom"] / 1e9
    capture_ns = given["packet_ns"] + given["byte_ns"] * (captured + 4)
    probe_ns = given["probe_ns"] + given["doubling_ns"] * max(0.0, math.log2(max(ask.flows, 1) / PROBED))
    record_ns = given["record_ns"] * max(1.0, (captured + 4) / given["recorded_size"])
    found = {
        "pps": pps,
        "capture_ns": capture_ns,
        "in_pool": in_pool,
        "queues": busy * capture_ns,
        "hub": busy * given["hub_ns"],
        "reader": busy * (given["reader_ns"] + given["work"]),
        "probe": busy * probe_ns * bool(ask.flows),
        "recorder": busy * record_ns * bool(ask.keep_s),
        "pool_bytes": given["pause"] * pps * in_pool * part(ask.consumers),
        "disk_rate": pps * (captured + BLOCK) * bool(ask.keep_s),
    }
    found["cores"] = sum(found[one] for one in ("queues", "hub", "probe", "recorder")) + ask.readers * found["reader"]
    found["memory_bytes"] = found["pool_bytes"] + ask.flows * given["flow_bytes"]
    found["disk_bytes"] = found["disk_rate"] * ask.keep_s * (1 + given["index_part"])
    return found


def part(consumers: int) -> float:
    """How much larger than what one reader leaves waiting a pool is that guarantees it to each (docs/hub.md)."""
    return 1.0 if consumers == 1 else 8 * consumers / 3


def lane_chunks(guaranteed: int, consumers: int) -> int:
    """Chunks of a lane that guarantees so many to each reader."""
    lent = math.ceil(guaranteed * part(consumers))
    return lent + min(64, max(2, math.ceil(lent / 7)))


@dataclass(frozen=True)
class Plan:
    """What one rate needs, in whole numbers."""

    rate: str
    packets_per_s: float
    receive_queues: int
    cores: dict[str, int]
    members_per_reader: int
    chunks_per_lane: int
    #: Chunks of a lane that each reader can hold, whatever others do.
    guaranteed_chunks: int
    pool_bytes: int
    memory_bytes: float
    disk_bytes_per_s: float
    disks: int
    recording_bytes: float
    index_bytes: float
    #: Result → the inputs whose change by 10 % changes it most, with this change in percent.
    carried_by: dict[str, dict[str, float]]
    extrapolated: list[str]
    #: Arguments of `ringtap` that simulate one receive queue during one pause.
    simulation: list[str]

    def as_json(self) -> dict[str, Any]:
        """The plan as an object."""
        return {"type": "plan", **asdict(self), "cores_total": sum(self.cores.values())}


def make(ask: Ask, costs: Costs) -> Plan:
    """Plans one rate."""
    given = {**costs.values, **ask.inputs(), "recorded_size": float(costs.recorded_size)}
    found = needs(ask, given)
    queues = math.ceil(found["queues"])
    members = math.ceil(found["reader"])
    cores = {"capture": queues, "hub": math.ceil(found["hub"]), "readers": ask.readers * members,
             "probe": math.ceil(found["probe"]), "recorder": math.ceil(found["recorder"])}  # fmt: skip
    # A chunk ends when the next packet does not fit; one more chunk is the one that is being written.
    room = CHUNK - CHUNK_HEADER - slot(ask.mix.largest())
    waiting = math.ceil(ask.pause_s * found["pps"] / queues)
    guaranteed = math.ceil(waiting * found["in_pool"] / room) + 1
    chunks = lane_chunks(guaranteed, ask.consumers)
    pool = (chunks * queues + 1) * CHUNK
    recording = found["disk_rate"] * ask.keep_s
    return Plan(
        ask.rate.text, found["pps"], queues, cores, members, chunks, guaranteed, pool,
        pool + ask.flows * given["flow_bytes"], found["disk_rate"], math.ceil(found["disk_rate"] / given["disk_rate"]),
        recording, recording * given["index_part"], carried(ask, costs, given),
        extrapolated(ask, costs, queues, found["disk_rate"]), simulation(ask, found, queues, waiting, guaranteed),
    )  # fmt: skip


def carried(ask: Ask, costs: Costs, given: dict[str, float]) -> dict[str, dict[str, float]]:
    """For each result, the two inputs whose change by 10 % changes it most, and all that equal the second."""
    plain = needs(ask, given)
    effects: dict[str, dict[str, float]] = {name: {} for key, name in RESULTS.items() if plain[key]}
    labels = {key: cost.what for key, cost in costs.each.items()} | INPUTS
    for name, label in labels.items():
        # Both ways: what divides then counts as much as what multiplies.
        tried = [needs(ask, {**given, name: given[name] * factor}) for factor in (CHANGE, 1 / CHANGE)]
        for key, result in RESULTS.items():
            if plain[key]:
                effect = max(math.exp(abs(math.log(one[key] / plain[key]))) - 1 for one in tried)
                effects[result][label] = round(100 * effect, 1)
    return {result: strongest(each) for result, each in effects.items()}


def strongest(effects: dict[str, float]) -> dict[str, float]:
    """The two largest effects, and all that equal the second."""
    ordered = sorted(effects.items(), key=lambda one: -one[1])
    return {name: effect for name, effect in ordered if effect > 0 and effect >= ordered[1][1]}


def extrapolated(ask: Ask, costs: Costs, queues: int, disk_rate: float) -> list[str]:
    """What goes beyond the measurements behind the costs."""
    found = ["a network card: the costs were measured on virtual interfaces, and the sender shared the capturing core"]
    if queues > 1:
        found.append("several receive queues: one was measured, each is taken to add as much")
    if ask.mix.least() < costs.sizes[0] or ask.mix.largest() > costs.sizes[1]:
        found.append(f"frames of {ask.mix.least()} to {ask.mix.largest()} bytes: {costs.sizes[0]} to {costs.sizes[1]} "
                     "were measured")  # fmt: skip
    if ask.consumers > costs.readers:
        found.append(f"{ask.consumers} readers: {costs.readers} were measured")
    if ask.flows > MOST_PROBED:
        found.append(f"{ask.flows:,.0f} flows: {MOST_PROBED:,} were measured")
    if ask.keep_s and set(ask.mix.parts) != {(costs.recorded_size, 1.0)}:
        found.append(f"the recorder: frames of {costs.recorded_size} bytes were measured; others are taken to cost as "
                     "much, larger ones more by their bytes")  # fmt: skip
    if disk_rate > costs.values["disk_rate"]:
        found.append("several disks: one was measured, each is taken to add as much")
    return found


def simulation(ask: Ask, found: dict[str, float], queues: int, waiting: int, guaranteed: int) -> list[str]:
    """One receive queue: its part of the rate for one pause, captured as planned, while its reader pauses."""
    size = "imix" if ask.mix.text == "imix" else str(round(ask.mix.mean()))
    rate = f"{ask.rate.value / queues:.0f}{'pps' if ask.rate.packets else 'bps'}"
    device = f"sim:{rate}?size={size}&burst={waiting}&chunk={CHUNK >> 10}KiB&chunks={guaranteed}"
    device += f"&snap={ask.snap}" if ask.snap else ""
    return ["sim", device, "--service", f"{1 / ask.pause_s:.0f}pps", "--capture", f"{1e9 / found['capture_ns']:.0f}pps"]
