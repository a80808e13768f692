# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenarios `distance` and `latency`: what readers that follow the capture closely cost it, and how
late packets reach them when many come."""

from __future__ import annotations

from dataclasses import replace

from ringtap_lab.manager.battery import Case
from ringtap_lab.scenarios import crowd, figures, quiet, readers, turns
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.trial import Traffic

SIZE = 64
#: A reader that looks at the capture rarely, because the user asks for it.
RARELY = replace(
    crowd.HUB,
    reader=replace(
        crowd.HUB.reader, name="reader with a watermark",
        command=crowd.HUB.reader.command.replace("hub.sock'", "hub.sock&watermark=20000&limit=5'"),
    ),
)  # fmt: skip
RATES = {"1 Mpps": "1mpps", "full rate": "max"}
KEYS = ("median_ns", "p99_ns", "max_ns", "lost")
LATE = "tap exclusive latency"


def distance_seconds(run: Run) -> float:
    """About how long it takes."""
    return 2 * run.settings.rounds * (run.settings.seconds + readers.OVERHEAD_SECONDS)


def distance(run: Run) -> dict:
    """The rate of the capture with a reader by default, and with one that looks rarely."""
    kinds = (crowd.HUB, RARELY)
    rows: dict[str, list[dict]] = {kind.name: [] for kind in kinds}
    traffic = Traffic(SIZE, "max", run.settings.seconds)
    for number in range(run.settings.rounds):
        for kind in kinds:
            measure = lambda kind=kind: crowd.measure(run, kind, [crowd.Wanted()], traffic)
            row = run.attempt(kind.reader, measure)
            if row is None:
                continue
            rows[kind.name].append({"round": number, **row})
            run.say(
                f"distance  round {number + 1}/{run.settings.rounds}  {kind.name:<24}"
                f" {row['delivered_mpps']:7.3f} Mpps, {row['lost']} lost"
            )
    entries = {
        kind.name: {
            **readers.entry(run, kind),
            "rounds": rows[kind.name],
            "summary": figures.summary(rows[kind.name], ("delivered_mpps", "lost")),
        }
        for kind in kinds
    }
    return {"size": SIZE, "contenders": entries}


def latency_seconds(run: Run) -> float:
    """About how long it takes."""
    return len(RATES) * run.settings.rounds * (run.settings.seconds + readers.OVERHEAD_SECONDS)


def latency(run: Run) -> dict:
    """Time from a packet's time stamp to the reader, by rate."""
    cases = {name: Case(LATE, size=SIZE, rate=rate, seconds=run.settings.seconds) for name, rate in RATES.items()}
    entries = quiet.latencies_of(run, "latency", cases, run.settings.rounds, KEYS, turns.SENDER)
    return {"size": SIZE, "contenders": entries}


def rate_ratio(result: dict) -> float | None:
    """The capture's rate with the reader that looks rarely, divided by that with the default."""
    rarely, usual = (figures.good_rounds(result, "distance", kind.name) for kind in (RARELY, crowd.HUB))
    found = figures.ratios(rarely, usual, "delivered_mpps")
    return figures.spread(found)["median"] if found else None


def p99_us(result: dict, rate: str) -> float | None:
    """Median over the rounds of the time within which 99 of 100 packets reach the reader."""
    found = [row["p99_ns"] / 1e3 for row in figures.good_rounds(result, "latency", rate)]
    return figures.spread(found)["median"] if found else None
