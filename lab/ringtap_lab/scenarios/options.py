# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the user may choose, and the settings that follow."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    rounds: int = 5
    seconds: float = 2.0
    sizes: tuple[int, ...] = (64, 512, 1500)
    #: Names of scenarios and contenders; all if empty.
    only: tuple[str, ...] = ()
    pool_rounds: int = 7
    record_rounds: int = 3
    record_seconds: float = 1.5
    idle_seconds: float = 10.0
    low_rate_rounds: int = 3
    low_rate_seconds: float = 5.0
    crowd_rounds: int = 3
    crowd_seconds: float = 1.5
    hub_rounds: int = 3
    hub_seconds: float = 5.0
    wake_rounds: int = 5
    open_rounds: int = 3
    find_gb: float = 8.0

    def is_full(self) -> bool:
        """Whether nothing is left out or shortened: only then do figures of goals count."""
        least = Settings()
        return (
            not self.only
            and set(least.sizes) <= set(self.sizes)
            and all(
                getattr(self, name) >= getattr(least, name)
                for name in vars(least)
                if name not in ("sizes", "only")
            )
        )


QUICK = {
    "rounds": 2, "seconds": 0.7, "sizes": (64, 1500), "pool_rounds": 2, "record_rounds": 1,
    "record_seconds": 0.7, "idle_seconds": 3.0, "low_rate_rounds": 1, "low_rate_seconds": 2.0,
    "crowd_rounds": 1, "crowd_seconds": 0.7, "hub_rounds": 1, "hub_seconds": 2.0, "wake_rounds": 1,
    "open_rounds": 1, "find_gb": 1.0,
}  # fmt: skip


def parse_arguments(words: list[str], names: Iterable[str]) -> argparse.Namespace:
    """What the user wants; `names` are all that `--only` may hold. Faults end the program."""
    names = list(dict.fromkeys(names))
    parser = argparse.ArgumentParser(
        prog="ringtap-lab bench",
        description="Compares Ringtap with other capture programs on this machine, in one run."
        " Needs root. Touches nothing outside namespaces of its own. A full run takes about 25"
        " minutes and writes bench/results/latest.md and .json; others write to target/bench/.",
        epilog=f"names for --only: {', '.join(names)}",
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of all contenders (5)")
    parser.add_argument("--seconds", type=float, help="traffic in one measurement (2)")
    parser.add_argument("--sizes", metavar="BYTES,...", help="with the FCS (64,512,1500)")
    parser.add_argument("--only", metavar="NAME,...", help="these scenarios and contenders")
    parser.add_argument("--quick", action="store_true", help="a rough run of about two minutes")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the result goes")
    parser.add_argument("--target", type=Path, metavar="DIR", help="cargo's target folder")
    parser.add_argument(
        "--readme", action="store_true", help="measure nothing: stored result into README.md"
    )
    asked = parser.parse_args(words)
    asked.only = tuple(asked.only.split(",")) if asked.only else ()
    for name in asked.only:
        if name not in names:
            parser.error(f"--only: there is no {name!r}; there are: {', '.join(names)}")
    try:
        asked.sizes = tuple(int(one) for one in asked.sizes.split(",")) if asked.sizes else None
    except ValueError:
        parser.error(f"--sizes: {asked.sizes!r} is not like 64,512,1500")
    if any(not 64 <= size <= 1518 for size in asked.sizes or ()):
        parser.error("--sizes: from 64 to 1518 bytes, with the FCS")
    if asked.rounds is not None and asked.rounds < 1:
        parser.error("--rounds: at least 1")
    if asked.seconds is not None and not 0.1 <= asked.seconds <= 60:
        parser.error("--seconds: from 0.1 to 60")
    return asked


def settings(asked: argparse.Namespace) -> Settings:
    """The settings that follow from what the user wants."""
    chosen = dict(QUICK) if asked.quick else {}
    for name in ("rounds", "seconds", "sizes", "only"):
        if getattr(asked, name):
            chosen[name] = getattr(asked, name)
    return Settings(**chosen)
