# SPDX-License-Identifier: MIT OR Apache-2.0
"""Markdown tables of scenarios that are not batteries."""

from __future__ import annotations

from collections.abc import Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[str]], left: int = 1) -> str:
    """A Markdown table, its columns aligned; all but the first `left` are numbers."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = []
    for number, line in enumerate(lines):
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ]
        text.append("| " + " | ".join(cells) + " |")
        if number == 0:
            rules = [
                "-" * width if column < left else "-" * (width - 1) + ":"
                for column, width in enumerate(widths)
            ]
            text.append("| " + " | ".join(rules) + " |")
    return "\n".join(text) + "\n"
