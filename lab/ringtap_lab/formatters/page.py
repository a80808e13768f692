# SPDX-License-Identifier: MIT OR Apache-2.0
"""One HTML page of a record: tables, plots, method, machines, versions, and every raw row."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import Any

from ringtap_lab.formatters.summary import entries, groups, machine_lines, notes
from ringtap_lab.formatters.tables import METHOD, aims_of, flat_rows, rows_of

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 95em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; } th, td { padding: .2em .7em; border-bottom: 1px solid #ddd; }
th { text-align: right; background: #f4f4f4; } td { text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } .raw { overflow: auto; font-size: 12px; }
.fault { color: #a00; } pre { background: #f4f4f4; padding: 1em; overflow: auto; }
"""


def html(head: dict[str, Any], rows: list[dict[str, Any]], plots: list[Path]) -> str:
    """The page; plots are put into it, so that it is one file."""
    parts = [f"<h1>{escape(head['title'])}</h1>"]
    when = f"{escape(head['date'])}, {escape(head['host'])}"
    parts.append(f"<p>Battery <code>{escape(head['battery'])}</code>, {when}</p>")
    parts.append(_items(notes(rows), "fault"))
    if wanted := aims_of(head, rows):
        parts += ["<h2>Aims</h2>", _table(wanted)]
    for group, several in groups(rows).items():
        parts += [f"<h2>{escape(group)}</h2>", _table(rows_of(several))]
    parts += [_picture(path) for path in plots if path.suffix == ".svg"]
    faults = [fault for entry in entries(rows) for fault in entry.faults]
    parts.append("<h2>Faults</h2>")
    parts.append(_items(faults, "fault") if faults else "<p>None: all accounts agree.</p>")
    parts += ["<h2>Method</h2>", f"<p>{escape(METHOD).replace('`', '')}</p>"]
    parts += ["<h2>Machines</h2>", _items(machine_lines(head)), "<h2>Contenders</h2>", _table(_contenders(head))]
    parts += ["<h2>Battery</h2>", f"<pre>{escape(head['text'])}</pre>", "<h2>Raw rows</h2>"]
    each = flat_rows(rows)
    raw = [list(each[0]), *([_cell(value) for value in row.values()] for row in each)] if each else [["none"]]
    parts.append(f'<div class="raw">{_table(raw)}</div>')
    title = f"<title>{escape(head['title'])}</title><style>{STYLE}</style>"
    return f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8">{title}\n' + "\n".join(parts) + "\n</html>\n"


def _picture(path: Path) -> str:
    """A plot within the page; as an image, since the names within two plots are the same."""
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<p><img alt="{escape(path.stem)}" src="data:image/svg+xml;base64,{data}"></p>'


def _contenders(head: dict[str, Any]) -> list[list[str]]:
    lines = [["name", "version", "note", "command"]]
    for name, one in head["contenders"].items():
        command = " ".join(f"{one['command']}{'  on: ' if one['server'] else ''}{one['server']}".split())
        lines.append([name, one["version"] or one["missing"], one["note"], command])
    return lines


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.3f}" if isinstance(value, float) else str(value)


def _items(lines: list[str], kind: str = "") -> str:
    return "<ul>" + "".join(f'<li class="{kind}">{escape(line)}</li>' for line in lines) + "</ul>"


def _table(lines: list[list[str]]) -> str:
    top, *rest = lines
    head = "".join(f"<th>{escape(one)}</th>" for one in top)
    body = "".join("<tr>" + "".join(f"<td>{escape(one)}</td>" for one in line) + "</tr>\n" for line in rest)
    return f"<table><tr>{head}</tr>\n{body}</table>"
