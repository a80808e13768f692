# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plots of a page, as SVG: ours, what was measured beside it, models and the paper's points, each in its own style."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringtap_lab.formatters.plots import figure
from ringtap_lab.papers.judge import Tables, select

STYLES: dict[str, dict[str, Any]] = {
    "ours": {"linestyle": "-", "marker": "o", "markersize": 4},
    "measured": {"linestyle": "-", "marker": "s", "markersize": 4},
    "model": {"linestyle": "--", "marker": ""},
    "paper": {"linestyle": "none", "marker": "*", "markersize": 12, "color": "black"},
}
NOT_FIELDS = ("name", "title", "x", "y", "xlabel", "ylabel", "log", "line")


def draw(folder: Path, tables: Tables, wanted: dict[str, Any]) -> Path | None:
    """Draws one plot; None without rows. Raises ImportError without matplotlib."""
    rows = select(tables, {key: value for key, value in wanted.items() if key not in NOT_FIELDS})
    if not rows:
        return None
    drawn = figure(7, 4.2)
    axes = drawn.add_subplot()
    lines: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
    for row in rows:
        if row.get(wanted["y"]) is not None:
            parts = [str(row[name]) for name in wanted.get("line", ["series"])]
            lines.setdefault((", ".join(parts), row["kind"]), []).append((row[wanted["x"]], row[wanted["y"]]))
    for (label, kind), points in lines.items():
        axes.plot(*zip(*points, strict=True), label=label, **STYLES[kind])
    for axis in wanted.get("log", []):
        getattr(axes, f"set_{axis}scale")("log")
    axes.set(xlabel=wanted["xlabel"], ylabel=wanted["ylabel"], title=wanted["title"])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    path = folder / f"{wanted['name']}.svg"
    drawn.savefig(path, metadata={"Date": None})
    return path
