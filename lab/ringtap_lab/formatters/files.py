# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files that formatters write beside a record's rows: one entry for each format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ringtap_lab.formatters import page, plots, tables
from ringtap_lab.manager.record import Record, give_to_user

Say = Callable[[str], None]


def _written(path: Path, text: str) -> list[Path]:
    path.write_text(text)
    return [path]


def _markdown(record: Record, _say: Say) -> list[Path]:
    return _written(record.folder / "record.md", tables.markdown(record.head(), record.rows()))


def _csv(record: Record, _say: Say) -> list[Path]:
    return _written(record.folder / "rows.csv", tables.as_csv(record.rows()))


def _json(record: Record, _say: Say) -> list[Path]:
    return _written(record.folder / "record.json", tables.as_json(record.head(), record.rows()))


def _parquet(record: Record, say: Say) -> list[Path]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        say("no Parquet file: install pyarrow (pip install ringtap-lab[tables])")
        return []
    path = record.folder / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(tables.flat_rows(record.rows())), path)
    return [path]


def _plots(record: Record, say: Say) -> list[Path]:
    try:
        return plots.draw(record.folder, record.rows())
    except ImportError:
        say("no plots: install matplotlib (pip install ringtap-lab[plots])")
        return []


def _html(record: Record, say: Say) -> list[Path]:
    return _written(record.folder / "page.html", page.html(record.head(), record.rows(), _plots(record, say)))


FORMATS: dict[str, Callable[[Record, Say], list[Path]]] = {
    "markdown": _markdown, "csv": _csv, "json": _json, "parquet": _parquet, "plots": _plots, "html": _html,
}  # fmt: skip


def write_all(record: Record, say: Say) -> list[Path]:
    """Writes every format; gives the paths."""
    paths = list(dict.fromkeys(path for write in FORMATS.values() for path in write(record, say)))
    for path in paths:
        give_to_user(path)
    return paths
