# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of other capture engines: one receive queue as a chain of buffers, each emptied at its rate.

A model is a TOML file in `models/`; each number in it names its source. Models count packets in whole
picoseconds and know nothing of Ringtap. When events coincide, a departure comes before an arrival.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "models"
PS_PER_SECOND = 10**12
#: The stage that the application empties.
READER = "reader"


def service_ps(rate_pps: int) -> int:
    """Time for one packet at this rate."""
    return PS_PER_SECOND // rate_pps


@dataclass
class Station:
    """A queue with one server: each packet keeps its place until it has been served.

    A packet that finds all places taken is lost.
    """

    places: int
    service_ps: int
    lost: int = 0

    def serve(self, arrivals: Iterable[int]) -> Iterator[int]:
        """The departure time of each packet that is not lost; `arrivals` are in order."""
        # Every packet takes the same time, so the server's remaining work tells how many wait.
        max_work_ps = (self.places - 1) * self.service_ps
        idle_from = 0
        if isinstance(arrivals, range):
            yield from self._serve_burst(arrivals, max_work_ps)
            return
        for now in arrivals:
            if idle_from - now > max_work_ps:
                self.lost += 1
            else:
                idle_from = max(idle_from, now) + self.service_ps
                yield idle_from

    def _serve_burst(self, arrivals: range, max_work_ps: int) -> Iterator[int]:
        """The same for even gaps; all packets that are lost before the next place is free are one step."""
        at, idle_from = 0, 0
        while at < len(arrivals):
            now = arrivals[at]
            if (late := idle_from - now - max_work_ps) > 0:
                lost = min(-(-late // arrivals.step), len(arrivals) - at)
                self.lost += lost
                at += lost
            else:
                at += 1
                idle_from = max(idle_from, now) + self.service_ps
                yield idle_from


def delivered(arrivals: Iterable[int], stations: Iterable[Station]) -> int:
    """Packets that pass all stations; a stage also spends its time on packets that the next one loses."""
    passing: Iterable[int] = arrivals
    for station in stations:
        passing = station.serve(passing)
    return sum(1 for _ in passing)


@dataclass(frozen=True)
class Stage:
    """One buffer: its places, who empties it, at most how fast, and where these numbers are from."""

    what: str
    places: int
    emptied_by: str
    pps: int
    source: str


@dataclass(frozen=True)
class Model:
    """One engine."""

    name: str
    note: str
    stages: tuple[Stage, ...]

    def loss_percent(self, packets: int, gap_ps: int, reader_pps: int | None = None) -> float:
        """Lost of a burst with this gap between packets, at a reader that is not faster than `reader_pps`."""
        rates = ((s.places, min(s.pps, reader_pps or s.pps) if s.emptied_by == READER else s.pps) for s in self.stages)
        return _loss_percent(packets, gap_ps, tuple(rates))


@functools.cache
def _loss_percent(packets: int, gap_ps: int, stages: tuple[tuple[int, int], ...]) -> float:
    """Engines with the same numbers are computed once, and those that are faster than the link not at all."""
    if all(service_ps(pps) <= gap_ps for _, pps in stages):
        return 0.0
    stations = [Station(places, service_ps(pps)) for places, pps in stages]
    return 100.0 * (1 - delivered(range(0, packets * gap_ps, gap_ps), stations) / packets)


def load(path: Path) -> Model:
    """Reads one model."""
    found = tomllib.loads(path.read_text())
    stages = tuple(Stage(**stage) for stage in found.pop("stage"))
    return Model(stages=stages, **found)


def load_all() -> dict[str, Model]:
    """All models by name."""
    return {one.name: one for one in map(load, sorted(FOLDER.glob("*.toml")))}
