# SPDX-License-Identifier: MIT OR Apache-2.0
"""The WireCAP figures as tables in Markdown, and their place in a page."""

from __future__ import annotations

from pathlib import Path

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
#: Offload thresholds that the page shows; the plots show all.
SHOWN_T = (None, 60)


def percent(share: float) -> str:
    """A share; `0` only if it is nothing at all."""
    return "0" if share == 0 else f"{share * 100:.2f} %"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def beside(rows: list[dict]) -> str:
    head = ["Engine, burst", "Paper", "Ring of 1,024", "and 4,096 in the NIC"]
    return table(head, [
        [f"{row['name']}, P = {row['P']:,}", f"{row['paper']:g} %" if row["paper"] else "0",
         percent(row["ring_only"]), percent(row["with_fifo"])]
        for row in rows
    ])


def absorption(rows: list[dict]) -> str:
    head = ["Link, reader", "R·M", "Paper's formula", "with the ring", "Longest without loss"]
    return table(head, [
        [f"{row['gbps']} Gbit/s, {row['reader']:,}/s", f"{row['room']:,}",
         f"{row['formula']:,.0f}", f"{row['with_ring']:,.0f}", f"{row['longest']:,}"]
        for row in rows
    ])


def mode(row: dict) -> str:
    """What a row of the skewed load shows."""
    return "basic" if row["T"] is None else f"advanced, T = {row['T']} %"


def skew(loads: dict[str, list[dict]]) -> str:
    head = ["Load, mode", "Lost", "Offloaded", "Out of order", "Most chunks of a lane"]
    return table(head, [
        [f"{name}, {mode(row)}", percent(row["loss"]), percent(row["offloaded"]),
         percent(row["disordered"]), f"{row['max_chunks']} of 100"]
        for name, rows in loads.items() for row in rows if row["T"] in SHOWN_T
    ])


def tables(found: dict) -> str:
    """All of them, each with its heading."""
    parts = [
        ("The paper's numbers", beside(found["beside"])),
        ("Bursts that a pool absorbs, in packets", absorption(found["absorption"])),
        ("Skewed queues", skew(found["skew"])),
    ]
    return "\n\n".join(f"### {heading}\n\n{body}" for heading, body in parts)


def replace(page: Path, text: str) -> None:
    """Puts the tables between the page's marks; ValueError if it has none."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the tables: {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
