# SPDX-License-Identifier: MIT OR Apache-2.0
"""Records as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from typing import Any

from ringtap_lab.formatters import summary
from ringtap_lab.formatters.summary import Entry, entries, groups, machine_lines, notes
from ringtap_lab.manager import aims

METHOD = """\
Contenders run in turn, repetition by repetition, and start at another place in each. Figures are
`median (least to most)` over the good repetitions. Offered is what the sender's device took, by the
kernel's counter; the captured device's counter must agree. Delivered is what the contender reports at
its end, after it was left to read all that waited. Sizes include the 4 bytes of the frame check
sequence. A case at fault (accounts that contradict each other, an exit code, a time-out, something
left behind) is listed and in no figure.
"""


def cell(entry: Entry, key: str, factor: float, digits: int) -> str:
    """One figure with its spread."""
    spread = entry.spread(key)
    if spread is None:
        return "–"
    median, least, most = (f"{one * factor:,.{digits}f}" for one in spread)
    return f"{median} ({least} to {most})" if len(entry.good) > 1 else median


def rows_of(several: list[Entry]) -> list[list[str]]:
    """A table: its head, then a line for each contender. Columns that nobody has are left out."""
    columns = summary.columns(several)
    beside = summary.against_nothing(several)
    divided = [one for one in columns if any(one[0] in each for each in beside.values())]
    table = [["", *(heading for _, heading, _, _ in columns),
              *(f"{heading}, ÷ nothing (95 %)" for _, heading, _, _ in divided), "good", "at fault"]]  # fmt: skip
    for entry in several:
        figures = [cell(entry, key, factor, digits) for key, _, factor, digits in columns]
        ratios = [beside.get(entry.contender, {}).get(key) for key, _, _, _ in divided]
        figures += [f"{one.ratio:.3f} ({one.low:.3f} to {one.high:.3f})" if one else "–" for one in ratios]
        table.append([entry.contender, *figures, str(len(entry.good)), str(len(entry.bad))])
    return table


def grid(table: list[list[str]], left: int = 1) -> str:
    """A Markdown table with aligned columns; all but the first `left` are numbers."""
    widths = [max(len(line[at]) for line in table) for at in range(len(table[0]))]
    rule = ["-" * width if at < left else "-" * (width - 1) + ":" for at, width in enumerate(widths)]
    lines = [table[0], rule, *table[1:]]
    return "\n".join(
        "| " + " | ".join(one.ljust(width) if at < left else one.rjust(width)
                          for at, (one, width) in enumerate(zip(line, widths, strict=True))) + " |"
        for line in lines
    )  # fmt: skip


def aims_of(head: dict[str, Any], rows: list[dict[str, Any]]) -> list[list[str]]:
    """The aims of a record's battery with their verdicts; empty if it has none."""
    wanted = aims.parse(tomllib.loads(head["text"]).get("aim", []), "its battery")
    return aims.table(wanted, rows) if wanted else []


def body(head: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """What was measured: notes, a table for each group of cases, faults, and how each contender was started."""
    parts = [f"> **Note**: {note}\n" for note in notes(rows)]
    for group, several in groups(rows).items():
        parts += [f"### {group}\n", grid(rows_of(several)), ""]
    faults = [fault for entry in entries(rows) for fault in entry.faults]
    parts += ["### Faults\n", "\n".join(f"- {one}" for one in faults) or "None: all accounts agree.", ""]
    missing = [f"- {name}: {one['missing']}" for name, one in head["contenders"].items() if one["missing"]]
    parts += (["### Not measured\n", *missing, ""] if missing else [])
    parts.append("### Contenders\n")
    for name, one in head["contenders"].items():
        version = f" {one['version']}" if one["version"] else ""
        note = f" ({one['note']})" if one["note"] else ""
        server = f"; on `{' '.join(one['server'].split())}`" if one["server"] else ""
        parts.append(f"- {name}{version}{note}: `{' '.join(one['command'].split())}`{server}")
    return "\n".join(parts) + "\n"


def markdown(head: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The whole record as a page."""
    parts = [f"# {head['title']}", f"Battery `{head['battery']}`, {head['date']}, host {head['host']}."]
    parts += ["- " + line for line in machine_lines(head)]
    if wanted := aims_of(head, rows):
        parts += ["\n## Aims\n", grid(wanted, left=4)]
    parts += ["\n## Figures\n", body(head, rows), "## Method\n", METHOD]
    return "\n".join(parts)


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row without nesting: the case's dimensions, then every figure."""
    figures = {key: value for key, value in row.items() if isinstance(value, (int, float, str, bool))}
    case = {f"case_{key}": value for key, value in row["case"].items()}
    return {**case, **figures, "problems": "; ".join(row["problems"])}


def flat_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows with the same columns; None where a row lacks one."""
    each = [flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in each for name in row))
    return [{name: row.get(name) for name in names} for row in each]


def as_csv(rows: list[dict[str, Any]]) -> str:
    """All rows, one a line."""
    each = flat_rows(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(each[0]) if each else ["key"])
    writer.writeheader()
    writer.writerows(each)
    return text.getvalue()


def as_json(head: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The record as one object."""
    return json.dumps({"type": "lab_record", **head, "rows": rows}, indent=1) + "\n"
