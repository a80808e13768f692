# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plots of a record, by matplotlib: one for each group of cases, as SVG and PNG."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ringtap_lab.formatters.summary import Entry, groups

COLOUR = "#2b6ca3"


def figure(width: float, height: float) -> Any:
    """An empty figure of matplotlib's; raises ImportError without it."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.use("Agg")
    # The same rows give the same bytes, and text stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "ringtap-lab", "svg.fonttype": "none"})
    return Figure(figsize=(width, height), layout="constrained")


def draw(folder: Path, rows: list[dict[str, Any]]) -> list[Path]:
    """Draws all groups; raises ImportError without matplotlib."""
    found = []
    for group, several in groups(rows).items():
        if any(entry.good for entry in several):
            found += _one(folder / ("plot-" + re.sub(r"[^\w]+", "-", group)), group, several)
    return found


def _one(stem: Path, group: str, several: list[Entry]) -> list[Path]:
    key, label, factor, _ = next(entry for entry in several if entry.good).main
    shown = [entry for entry in reversed(several) if entry.spread(key)]
    spreads = [[value * factor for value in entry.spread(key) or ()] for entry in shown]
    drawn = figure(7, 0.8 + 0.35 * len(shown))
    axes = drawn.add_subplot()
    errors = [[one[0] - one[1] for one in spreads], [one[2] - one[0] for one in spreads]]
    axes.barh([entry.contender for entry in shown], [one[0] for one in spreads], xerr=errors, color=COLOUR, capsize=3)
    axes.set_xlabel(f"{label}; bars are medians, lines least to most")
    axes.set_title(group, fontsize=10)
    paths = [stem.with_name(stem.name + ending) for ending in (".svg", ".png")]
    drawn.savefig(paths[0], metadata={"Date": None})
    drawn.savefig(paths[1], dpi=120)
    return paths
