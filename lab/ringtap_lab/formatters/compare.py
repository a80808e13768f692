# SPDX-License-Identifier: MIT OR Apache-2.0
"""Two records compared: ratio of each case's figure with its interval of 95 %.

An interval that holds 1 is "no difference shown".
"""

from __future__ import annotations

from ringtap_lab.formatters.intervals import interval
from ringtap_lab.formatters.summary import Entry, entries
from ringtap_lab.formatters.tables import grid
from ringtap_lab.manager.record import Record


def text(first: Record, second: Record) -> str:
    """All cases that both records have, as a page."""
    heads = [one.head() for one in (first, second)]
    known = [{row["key"]: entry for row, entry in _keyed(one)} for one in (first, second)]
    table = [["case", "figure", "first", "second", "ratio (95 %)", ""]]
    for key, before in known[0].items():
        after = known[1].get(key)
        if after is not None:
            table.append(_line(before, after))
    lines = [f"# Comparison of two records of `{heads[0]['battery']}`\n"]
    lines += [f"- first: {heads[0]['date']}, {heads[0]['host']}", f"- second: {heads[1]['date']}, {heads[1]['host']}"]
    alone = len(set(known[0]) ^ set(known[1]))
    lines += ["", grid(table) if len(table) > 1 else "The records have no case in common."]
    lines += [f"\n{alone} cases are in one record only."] if alone else []
    return "\n".join(lines) + "\n"


def _keyed(record: Record) -> list[tuple[dict[str, str], Entry]]:
    rows = record.rows()
    first = {row["key"]: row for row in rows}
    return list(zip(first.values(), entries(rows), strict=True))


def _line(before: Entry, after: Entry) -> list[str]:
    key, figure, factor, digits = before.main
    found = interval(before.values(key), after.values(key))
    medians = [f"{spread[0] * factor:.{digits}f}" if (spread := one.spread(key)) else "–" for one in (before, after)]
    if found is None:
        words = ["–", f"too few good repetitions ({len(before.good)} and {len(after.good)})"]
    else:
        words = [f"{found.ratio:.3f} ({found.low:.3f} to {found.high:.3f})", found.verdict]
    return [f"{before.contender}, {before.group}", figure, *medians, *words]
