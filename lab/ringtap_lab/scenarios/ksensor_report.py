# SPDX-License-Identifier: MIT OR Apache-2.0
"""The Ksensor paper's figures as a page, as plots, and what of them does not hold."""

from __future__ import annotations

from pathlib import Path

from ringtap_lab.scenarios.tables import table

LABELS = {"workers": "workers", "kernel": "kernel", "libpcap": "Adviser on libpcap"}
OURS = ("workers", "kernel")
#: Two trials of the same speed may differ so much.
NOISE = 0.9

HEAD = """\
# Analysis and capture throughput by offered rate

The Ksensor paper's figures 6 to 9 (ICN 2014), made by `make figures`: packets a second, captured and
analysed, while 64-byte packets come at a steady rate. `ringtap probe` runs the analysis `load` in
workers and in the kernel; the Adviser is a program on libpcap with a capturing process and one
analysing process for each core (`lab/ringtap_lab/scenarios/adviser.c`).

This machine has two cores, and the sender needs one. With one core, sender and receive path share
core 0, processes have core 1; the kernel's analyses run where packets arrive, on core 0. With two
cores, a sender on each of them sends half of the rate. A sender never sends more than what the
kernel's receive path takes: where that has the analysis, less is sent than offered.
"""


def short_of(points: list[dict], others: list[dict]) -> list[str]:
    """Rates at which less is analysed than by the other line."""
    return [
        f"{point['rate']:,}" for point, other in zip(points, others)
        if point["analysed"] < NOISE * other["analysed"]
    ]  # fmt: skip


def claims(found: dict) -> list[str]:
    """What does not hold of one figure."""
    wrong = []
    for line in OURS:
        points, most, label = found[line], 0.0, LABELS[line]
        if in_vain := sum(point["in_vain"] for point in points):
            wrong.append(f"{label}: {in_vain:,} packets captured and not analysed")
        for point in points:
            if point["analysed"] < NOISE * most:
                wrong.append(
                    f"{label}: {point['analysed'] / most:.2f} of the most at {point['rate']:,}/s"
                )
            most = max(most, point["analysed"])
        wrong += [f"{label}: less than libpcap at {at}/s" for at in short_of(points, found["libpcap"])]
    return wrong


def rows(found: dict) -> str:
    """Every fourth rate of a figure."""
    head = ["offered"]
    for label in LABELS.values():
        head += [f"{label}: captured", "analysed"]
    lines = []
    for at in range(0, len(found["workers"]), 4):
        line = [f"{found['workers'][at]['rate']:,}"]
        for name in LABELS:
            line += [f"{found[name][at][key]:,.0f}" for key in ("captured", "analysed")]
        lines.append(line)
    return table(head, lines, left=0)


def page(figures: dict[str, dict]) -> str:
    """The page of all figures that were measured."""
    parts = [HEAD]
    for title, found in figures.items():
        parts.append(f"## {title}\n\n{found['date']}, revision {found['revision']}.\n\n{rows(found)}")
        wrong = claims(found)
        parts.append(
            "Captured = analysed, analysed never falls below 0.9 of what it was at a lower rate or of"
            " libpcap's, but: " + "; ".join(wrong) + ".\n"
            if wrong else "Captured = analysed at every rate; what is analysed falls at no rate, and is"
            " nowhere less than on libpcap (within 10 %).\n"
        )  # fmt: skip
    return "\n".join(parts)


def plot(figures: dict[str, dict], folder: Path) -> None:
    """The figures, PNG and SVG."""
    from ringtap_lab.scenarios.wirecap_plots import pyplot, save

    folder.mkdir(parents=True, exist_ok=True)
    for title, found in figures.items():
        drawing, axes = pyplot.subplots(figsize=(7, 4.2))
        for mark, (line, label) in zip("osv", LABELS.items()):
            rates = [point["rate"] for point in found[line]]
            for key, style in (("captured", "--"), ("analysed", "-")):
                values = [point[key] for point in found[line]]
                axes.plot(rates, values, style + mark, label=f"{label}: {key}", markersize=4)
        axes.set(xlabel="offered, packets/s", ylabel="packets/s", title=title)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
        for file in save(drawing, folder, title.split(":")[0].lower().replace(" ", "")):
            print(f"ksensor: {file}")
