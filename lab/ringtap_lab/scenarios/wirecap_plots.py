# SPDX-License-Identifier: MIT OR Apache-2.0
"""The WireCAP figures as plots, PNG and SVG, by matplotlib."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
# Nothing in a file depends on when and where it was drawn.
matplotlib.rcParams.update({"svg.hashsalt": "ringtap", "figure.autolayout": True})

from matplotlib import pyplot

PAPER = {"linestyle": "none", "marker": "*", "markersize": 13, "color": "black"}


def save(figure, folder: Path, name: str) -> list[Path]:
    files = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    for file in files:
        figure.savefig(file, dpi=120, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)
    return files


def over_bursts(rows: list[dict], columns: dict[str, str], title: str):
    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    markers = iter("osv^D")
    for key, label in columns.items():
        losses = [row[key] * 100 for row in rows]
        axes.plot([row["P"] for row in rows], losses, marker=next(markers), label=label)
    axes.set_xscale("log")
    axes.set(xlabel="packets in the burst, P", ylabel="lost, %", ylim=(-3, 103), title=title)
    axes.grid(alpha=0.3)
    return figure, axes


def absorption(rows: list[dict]):
    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    formula = [row["formula"] for row in rows]
    axes.plot(formula, formula, color="grey", label="P_in·R·M / (P_in − P_p)")
    axes.plot(formula, [row["longest"] for row in rows], "o", label="longest burst without loss")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(xlabel="packets by the formula", ylabel="packets", title="What a pool absorbs")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def skew(found: dict[str, list[dict]]):
    """A panel for each skew, whose lines would else hide each other."""
    figure, panels = pyplot.subplots(1, len(found), figsize=(5 * len(found), 4.2), sharey=True,
                                     squeeze=False)
    for axes, (name, rows) in zip(panels[0], found.items()):
        labels = ["basic" if row["T"] is None else f"{row['T']} %" for row in rows]
        for key, mark, what in (("loss", "o-", "lost"), ("disordered", "s-", "out of order")):
            values = [row[key] * 100 for row in rows]
            axes.plot(labels, values, mark, label=what, alpha=0.8)
        axes.set(xlabel="offload threshold T", title=f"Skewed queues, {name}")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    panels[0][0].set_ylabel("packets, %")
    return figure


def draw(found: dict, folder: Path) -> list[Path]:
    """Draws all of them; gives the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    ring, copy = "ring only (DNA, netmap)", "copy to a second buffer (PF_RING)"
    figure, axes = over_bursts(
        found["no_load"], {"pool": "(256,100)", "ring": ring, "copy": copy}, "Readers only count")
    axes.legend()
    files += save(figure, folder, "no-load")
    columns = {"small": "(256,100)", "large": "(256,500)", "ring": ring, "copy": copy}
    figure, axes = over_bursts(found["loaded"], columns, "Readers at 38,844 packets/s")
    points = found["beside"]
    axes.plot([row["P"] for row in points], [row["paper"] for row in points], **PAPER,
              label="the paper")
    axes.legend()
    files += save(figure, folder, "loaded")
    shapes = {key: key for key in found["product"][0] if key != "P"}
    figure, axes = over_bursts(found["product"], shapes, "Only R·M counts")
    axes.legend()
    files += save(figure, folder, "product")
    files += save(absorption(found["absorption"]), folder, "absorption")
    files += save(skew(found["skew"]), folder, "skew")
    return files
