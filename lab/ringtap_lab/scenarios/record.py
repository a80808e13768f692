# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenarios `record` and `af-xdp`: highest rates without loss, of 1500-byte packets into a file on a
tmpfs, and of 64-byte packets through AF_XDP sockets."""

from __future__ import annotations

from dataclasses import dataclass

from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.contender import Contender
from ringtap_lab.manager.search import STEPS
from ringtap_lab.scenarios import turns
from ringtap_lab.scenarios.run import Run

#: Bytes of the packets that are recorded.
FILE_SIZE = 1500
#: More packets a second than any two cores send; bounds the size of the files.
FASTEST_PPS = 1_500_000


@dataclass(frozen=True)
class LosslessRates:
    """The contenders of a scenario, and the size of their packets."""

    name: str
    contenders: list[Contender]
    size: int

    def seconds(self, run: Run) -> float:
        """About how long it takes: later rounds need fewer trials."""
        trials = STEPS + 4 * (run.settings.record_rounds - 1)
        return trials * len(run.chosen(self.contenders)) * (run.settings.record_seconds + 1.5)

    def run(self, run: Run) -> dict:
        """Gives, by contender, the rate of every round and the spread."""
        length = _trial_seconds(run)
        cases = {
            one.name: Case(one.name, "lossless", self.size, seconds=length) for one in run.chosen(self.contenders)
        }
        measured = turns.measure(run, self.name, list(cases.values()), run.settings.record_rounds)
        entries = {
            name: turns.entry(run, turns.KNOWN[name], measured[case.key], ("lossless_pps",))
            for name, case in cases.items()
        }
        return {"size": self.size, "trial_seconds": length, "contenders": entries}


def _trial_seconds(run: Run) -> float:
    """As long as wanted, or shorter where the files would not fit into half of the memory."""
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        kib = next(int(line.split()[1]) for line in meminfo if line.startswith("MemAvailable"))
    return min(run.settings.record_seconds, kib * 1024 * 0.4 / (FASTEST_PPS * FILE_SIZE))


RECORD = LosslessRates(
    "record", turns.named("ringtap record (tap)", "ringtap record (tap exclusive)", "dumpcap file"), FILE_SIZE
)
AF_XDP = LosslessRates("af-xdp", turns.named("xdp", "DPDK testpmd"), 64)
