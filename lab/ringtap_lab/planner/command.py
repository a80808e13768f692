# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command `plan`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from ringtap_lab.planner import costs, model, report
from ringtap_lab.planner.quantities import MOST, SECONDS, TENS, Mix, PlanError, Rate, number


def parser() -> argparse.ArgumentParser:
    """All words that the command knows."""
    words = argparse.ArgumentParser(prog="ringtap-lab plan", description="what a link needs, from measured costs")
    words.add_argument("--rate", required=True, metavar="RATE,...", help="10Gbps (with preambles and gaps) or 5Mpps")
    words.add_argument("--mix", default="imix", metavar="MIX",
                       help="imix, SIZE or SIZE:PARTS,SIZE:PARTS; with check sequence")  # fmt: skip
    words.add_argument("--readers", default="1", metavar="N", help="readers of all packets")
    words.add_argument("--flows", default="0", metavar="N", help="a probe with so many concurrent flows, such as 10M")
    words.add_argument("--keep", default="0s", metavar="TIME", help="a recorder whose files stay, such as 7d")
    words.add_argument("--snap", default="0", metavar="BYTES", help="bytes to keep of each packet; 0: all")
    words.add_argument("--pause", default="100ms", metavar="TIME", help="longest pause of a reader (%(default)s)")
    words.add_argument("--headroom", default="2", metavar="X", help="capacity beyond the measured costs (%(default)s)")
    words.add_argument("--work", default="0", metavar="NS", help="a reader's own work on a packet, ns of a core")
    words.add_argument("--results", type=Path, metavar="FILE|RECORD", help="costs of another machine")
    words.add_argument("--json", action="store_true", help="one object for each rate")
    return words


def asks(asked: argparse.Namespace) -> list[model.Ask]:
    """One question for each rate."""
    most = 1e6
    counts = {name: number(f"--{name}", getattr(asked, name), TENS if name == "flows" else {"": 1.0}, least, limit)
              for name, least, limit in (("readers", 1, 1000), ("flows", 0, 1e12), ("snap", 0, MOST),
                                         ("headroom", 1, 100), ("work", 0, most))}  # fmt: skip
    for name in ("readers", "flows", "snap"):
        if not counts[name].is_integer():
            raise PlanError(f"--{name}: {getattr(asked, name)!r} is not a whole number")
    keep = number("--keep", asked.keep, SECONDS, 0, 100 * 365 * SECONDS["d"])
    pause = number("--pause", asked.pause, SECONDS, 1e-3, 60)
    return [
        model.Ask(Rate.read(rate), Mix.read(asked.mix), int(counts["readers"]), counts["flows"], keep, pause,
                  counts["headroom"], counts["work"], int(counts["snap"]))
        for rate in asked.rate.split(",")
    ]  # fmt: skip


def main(words: list[str]) -> int:
    """Runs the command; gives the exit status."""
    asked = parser().parse_args(words)
    try:
        each = asks(asked)
        known = costs.load(asked.results)
    except PlanError as error:
        print(f"ringtap-lab plan: {error}", file=sys.stderr)
        return 2
    plans = [model.make(ask, known) for ask in each]
    if asked.json:
        rests_on = {key: asdict(cost) for key, cost in known.each.items()}
        for plan in plans:
            print(json.dumps({**plan.as_json(), "costs": rests_on}))
    else:
        print(report.page(words, each[0], known, plans))
    return 0
