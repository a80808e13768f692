# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenarios `record` and `af-xdp`: highest rates without loss, of 1500-byte packets into a file on a
tmpfs, and of 64-byte packets through AF_XDP sockets."""

from __future__ import annotations

from dataclasses import dataclass

from ringtap_lab.manager.search import STEPS
from ringtap_lab.scenarios import contenders, figures
from ringtap_lab.scenarios.lossless import highest_lossless, hint_of
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.trial import Traffic, measure

#: Bytes of the packets that are recorded.
FILE_SIZE = 1500
#: More packets a second than any two cores send; bounds the size of the files.
FASTEST_PPS = 1_500_000


@dataclass(frozen=True)
class LosslessRates:
    """The contenders of a scenario, and the size of their packets."""

    name: str
    contenders: list[contenders.Contender]
    size: int

    def seconds(self, run: Run) -> float:
        """About how long it takes: later rounds need fewer trials."""
        trials = STEPS + 4 * (run.settings.record_rounds - 1)
        return trials * len(run.chosen(self.contenders)) * (run.settings.record_seconds + 1.5)

    def run(self, run: Run) -> dict:
        """Gives, by contender, the rate of every round and the spread."""
        chosen = run.chosen(self.contenders)
        rows: dict[str, list[dict]] = {one.name: [] for one in chosen}
        length = _trial_seconds(run)
        for number in range(run.settings.record_rounds):
            for one in chosen:
                row = self._search(run, one, length, hint_of(rows[one.name]))
                if row is None:
                    continue
                rows[one.name].append({"round": number, **row})
                run.say(
                    f"{self.name} {self.size} B  round {number + 1}/{run.settings.record_rounds}"
                    f"  {one.name:<31} {row['lossless_pps'] / 1e6:6.3f} Mpps without loss"
                    + (" (the sender's limit)" if row["limited"] else "")
                )
        found = {"size": self.size, "trial_seconds": length, "contenders": {}}
        for one in chosen:
            row = run.entry(one)
            row["rounds"] = rows[one.name]
            row["summary"] = figures.summary(rows[one.name], ("lossless_pps",))
            found["contenders"][one.name] = row
        return found

    def _search(
        self, run: Run, contender: contenders.Contender, length: float, hint: float | None
    ) -> dict | None:
        trials = []

        def probe(rate: str) -> tuple[float, float, bool] | None:
            traffic = Traffic(self.size, rate, length)
            row = run.attempt(contender, lambda: measure(run.programs, contender, traffic))
            if row is None:
                return None
            trials.append({"rate": rate, **row})
            return row["offered_mpps"] * 1e6, row["delivered_mpps"] * 1e6, row["lost"] == 0

        found = highest_lossless(probe, hint)
        return None if found is None else {**found, "trials": trials}


def _trial_seconds(run: Run) -> float:
    """As long as wanted, or shorter where the files would not fit into half of the memory."""
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        kib = next(int(line.split()[1]) for line in meminfo if line.startswith("MemAvailable"))
    return min(run.settings.record_seconds, kib * 1024 * 0.4 / (FASTEST_PPS * FILE_SIZE))


RECORD = LosslessRates("record", contenders.RECORD, FILE_SIZE)
AF_XDP = LosslessRates("af-xdp", [contenders.XDP, contenders.TESTPMD], 64)
