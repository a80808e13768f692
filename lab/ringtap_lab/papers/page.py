# SPDX-License-Identifier: MIT OR Apache-2.0
"""Page of a published figure: whether its claim holds, ours beside the paper's numbers, and why they differ."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringtap_lab.formatters.tables import grid
from ringtap_lab.papers.judge import PageError, Tables, Verdict, headline, judge, select, values

WIDTH = 120
NOTICE = "<!-- Made by `make figures`; its data are in {source}. -->"
WORDS = {"title", "paper", "claim", "differs", "data", "beside", "check", "table", "plot"}


def number(value: Any, digits: int = 2) -> str:
    """A cell; `0` only if it is nothing at all."""
    if not isinstance(value, (int, float)):
        return "–" if value is None else str(value)
    if value == 0:
        return "0"
    return f"{value:,.0f}" if isinstance(value, int) or digits == 0 else f"{value:,.{digits}f}"


def make(
    wanted: dict[str, Any], source: str, tables: Tables, made: dict[str, str],
    draw: Callable[[dict[str, Any]], Path | None],
) -> str:  # fmt: skip
    """Writes the page of one paper."""
    if unknown := set(wanted) - WORDS:
        raise PageError(f"{source}: unknown: {', '.join(sorted(unknown))}")
    verdicts = [judge(tables, check) for check in wanted["check"]]
    parts = [f"# {wanted['title']}: {headline(verdicts)}", NOTICE.format(source=source)]
    parts += [_wrapped(f"{wanted['paper']}."), _wrapped(f"The claim: {wanted['claim']}"), _checks(verdicts)]
    if "beside" in wanted:
        parts += ["## Beside the paper's numbers", _beside(tables, wanted["beside"])]
    for plot in wanted.get("plot", []):
        path = draw(plot)
        parts += [f"![{plot['title']}]({path.name})"] if path else []
    for table in wanted.get("table", []):
        if text := _table(tables, table):
            parts += [f"## {table['title']}", text]
    parts += ["## What differs, and why", "\n".join(_wrapped(one, "- ") for one in wanted["differs"])]
    parts += ["## Made by", _made(made)]
    return "\n\n".join(parts) + "\n"


def _made(made: dict[str, str]) -> str:
    """How each data set was made; those that were made alike in one line."""
    alike: dict[str, list[str]] = {}
    for name, how in made.items():
        alike.setdefault(how, []).append(name)
    return "\n".join(_wrapped(f"{', '.join(names)}: {how}", "- ") for how, names in alike.items())


def _wrapped(text: str, bullet: str = "") -> str:
    """A paragraph, or an item of a list, in lines of the documents' length."""
    words, indent = " ".join(text.split()), " " * len(bullet)
    return textwrap.fill(
        words, WIDTH, initial_indent=bullet, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _checks(verdicts: list[Verdict]) -> str:
    lines = [["check", "values", "nearest to failing", "rule", "bound", ""]]
    for one in verdicts:
        shown = [number(one.value), one.rule, number(one.bound)] if one.count else ["–", one.rule, "–"]
        lines.append([one.text, str(one.count), *shown, one.word])
    return grid(lines)


def _beside(tables: Tables, numbers: list[dict[str, Any]]) -> str:
    lines = [["", "paper", "here", "what is here", "source of the paper's number"]]
    for one in numbers:
        found, digits = values(tables, one["here"]), one.get("digits", 2)
        mine = " to ".join(number(value, digits) for value in dict.fromkeys((min(found), max(found)))) if found else "–"
        lines.append([one["what"], one["paper"], mine, one.get("by", "Ringtap"), one["source"]])
    return grid(lines)


def _table(tables: Tables, wanted: dict[str, Any]) -> str:
    """A line for each row with the `values`; or with `columns`, a line for each value of `rows`."""
    words = ("title", "rows", "columns", "values", "heading", "digits")
    found = select(tables, {key: value for key, value in wanted.items() if key not in words})
    if not found:
        return ""
    if "values" in wanted:
        lines = [[wanted["heading"], *(heading for _, heading, _ in wanted["values"])]]
        for row in found:
            label = ", ".join(number(row[key]) for key in wanted["rows"])
            lines.append([label, *(number(row.get(key), digits) for key, _, digits in wanted["values"])])
        return grid(lines)
    down, across = wanted["rows"], wanted["columns"]
    # Numbers in order; text stays as it was measured.
    found.sort(key=lambda row: [row[name] if isinstance(row[name], (int, float)) else 0 for name in down])
    columns = list(dict.fromkeys(row[across] for row in found))
    cells = {(_label(row, down), row[across]): row.get(wanted["value"]) for row in found}
    lines = [[wanted["heading"], *(number(one) for one in columns)]]
    for label in dict.fromkeys(_label(row, down) for row in found):
        lines.append([label, *(number(cells.get((label, one)), wanted.get("digits", 2)) for one in columns)])
    return grid(lines)


def _label(row: dict[str, Any], fields: list[str]) -> str:
    return ", ".join(number(row[name]) for name in fields)


def first_line(text: str) -> str:
    """Title and verdict of a page."""
    return text.partition("\n")[0].removeprefix("# ")


def index(pages: dict[str, str]) -> str:
    """The list of all pages, by their names."""
    lines = "\n".join(f"- [{first_line(text)}]({name}.md)" for name, text in pages.items())
    return f"""\
# Published figures

{NOTICE.format(source="lab/ringtap_lab/papers/")}

Each page repeats figures of one paper: ours beside the paper's numbers, what differs and why. Checks are rules that
`make figures` evaluates on the numbers. Curves of engines that cannot be installed here are models and say so.

{lines}

`scripts/lab figures NAME` makes one page again, `--stored` without measuring.
"""
