# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `capture`: everybody captures the same traffic at full speed, in turn."""

from __future__ import annotations

from ringtap_lab.scenarios import contenders, figures
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.trial import Traffic, measure

KEYS = (
    "offered_mpps", "delivered_mpps", "loss_percent", "ns_above_floor", "ns_above_floor_offered",
)  # fmt: skip
#: Starting, letting a contender finish, and ending it.
OVERHEAD_SECONDS = 1.2


def seconds(run: Run) -> float:
    """About how long it takes."""
    each = run.settings.seconds + OVERHEAD_SECONDS
    there = [one for one in run.chosen(contenders.CAPTURE) if not run.programs.missing(one)]
    return each * len(run.settings.sizes) * run.settings.rounds * len(there)


def run(run: Run) -> dict:
    """Measures all sizes; gives, by size and contender, every round and the spread."""
    chosen = run.chosen(contenders.CAPTURE)
    if contenders.FLOOR not in chosen:
        chosen.insert(0, contenders.FLOOR)
    return {str(size): _one_size(run, chosen, size) for size in run.settings.sizes}


def _one_size(run: Run, chosen: list[contenders.Contender], size: int) -> dict:
    rows: dict[str, list[dict]] = {one.name: [] for one in chosen}
    traffic = Traffic(size, "max", run.settings.seconds)
    for number in range(run.settings.rounds):
        # Nobody is always first, or always after the same neighbour's caches.
        turn = number % len(chosen)
        for one in chosen[turn:] + chosen[:turn]:
            row = run.attempt(one, lambda one=one: measure(run.programs, one, traffic))
            if row is None:
                continue
            rows[one.name].append({"round": number, **row})
            run.say(
                f"{size:>5} B  round {number + 1}/{run.settings.rounds}  {one.name:<18}"
                f" {row['delivered_mpps']:7.3f} Mpps  {row['loss_percent']:6.2f} % lost"
            )
    figures.with_floor(rows, contenders.FLOOR.name)
    found = {}
    for one in chosen:
        row = run.entry(one)
        row["rounds"] = rows[one.name]
        row["summary"] = figures.summary(rows[one.name], KEYS)
        found[one.name] = row
    return found
