# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rows for pages: from records of batteries, results of other programs, and experiments in virtual time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringtap_lab.formatters.summary import entries, machine_lines
from ringtap_lab.manager.record import Record
from ringtap_lab.papers import virtual
from ringtap_lab.papers.judge import PageError, Row
from ringtap_lab.papers.virtual import WIRE_BYTES
from ringtap_lab.root import RESULTS

#: Where records of the pages' batteries are kept.
RECORDS = RESULTS / "figures"


@dataclass(frozen=True)
class Data:
    """One data set: its rows, and how they were made; without rows, what makes them."""

    rows: list[Row]
    made: str


def load(wanted: dict[str, Any], sim: virtual.Simulator) -> Data:
    """Loads a data set of a page; one of its keys (`battery`, `simulate`, ...) says from where."""
    kinds = {"rows": _given, "simulate": _simulated, "model": _modelled, "battery": _recorded,
             "stored": _stored}  # fmt: skip
    (kind,) = [word for word in kinds if word in wanted] or [""]
    if not kind:
        raise PageError(f"no known kind of data in {wanted}")
    return kinds[kind](wanted, sim)


def _given(wanted: dict[str, Any], _sim: virtual.Simulator) -> Data:
    rows = [{"series": "the paper", "kind": "paper", **row} for row in wanted["rows"]]
    return Data(rows, f"{wanted['source']} of the paper")


def _simulated(wanted: dict[str, Any], sim: virtual.Simulator) -> Data:
    options = {key: value for key, value in wanted.items() if key != "simulate"}
    rows = virtual.EXPERIMENTS[wanted["simulate"]](sim, **options)
    return Data(rows, "virtual time, the same on every machine: `ringtap sim` runs Ringtap's pool, models the others")


def _modelled(wanted: dict[str, Any], _sim: virtual.Simulator) -> Data:
    rows = virtual.line(wanted["model"], **{key: value for key, value in wanted.items() if key != "model"})
    return Data(rows, "models in virtual time: no program was measured")


def _recorded(wanted: dict[str, Any], _sim: virtual.Simulator) -> Data:
    name = wanted["battery"]
    return _record(RECORDS / name, f"`scripts/lab run {name}`", wanted)


def _stored(wanted: dict[str, Any], _sim: virtual.Simulator) -> Data:
    """A record of `make bench` or `make bench-vm`, which `make figures` does not make again."""
    name = Path(wanted["stored"]).name
    return _record(RESULTS / wanted["stored"], f"`scripts/lab bench --only {name}` (stored result)", wanted)


def _record(folder: Path, command: str, wanted: dict[str, Any]) -> Data:
    if not (folder / "head.json").exists():
        return Data([], f"{command}: not measured yet")
    record = Record(folder)
    head, measured = record.head(), record.rows()
    rows = list(_medians(measured))
    if "curves" in wanted:
        rows = list(_curves(rows, wanted["curves"]))
    machines = "; ".join(machine_lines({**head, "machines": dict(list(head["machines"].items())[:1])}))
    version = next((f"ringtap {one['version']}" for name, one in head["contenders"].items()
                    if name.startswith(OURS) and one["version"]), "")  # fmt: skip
    fault = sum(bool(row["problems"]) for row in measured)
    absent = [f"{key}: {one['missing']}" for key, one in head["contenders"].items() if one["missing"]]
    notes = [f"{fault} of {len(measured)} rows at fault, in no figure"] if fault else []
    return Data(rows, "; ".join([f"{command}, {head['date']}, {version}; {machines}", *notes, *absent]))


def _medians(measured: list[Row]) -> Iterator[Row]:
    """A row for each case: medians over the good repetitions, and sums of packets."""
    for entry in entries(measured):
        if not entry.good:
            continue
        numbers = {key for row in entry.good for key, value in row.items() if isinstance(value, (int, float))}
        found: Row = {key: statistics.median(entry.values(key)) for key in sorted(numbers)}
        for key in ("offered_pps", "delivered_pps", "lossless_pps"):
            if key in found:
                found[key.replace("pps", "mpps")] = found[key] / 1e6
        if "loss_percent" in found:
            found["captured_percent"] = 100.0 - found["loss_percent"]
        for key in ("offered", "lost"):
            found[f"{key}_sum"] = sum(entry.values(key))
        if entry.case["rate"].endswith("Gbps") and not entry.case.get("file"):
            link_pps = float(entry.case["rate"].removesuffix("Gbps")) * 1e9 / 8 / (entry.case["size"] + WIRE_BYTES)
            found["of_link_percent"] = 100.0 * found["delivered_pps"] / link_pps
            # The sender may be slower than the link.
            found["is_full"] = found.get("offered_pps", 0) > FULL * link_pps
        kind = "ours" if entry.contender.startswith(OURS) else "measured"
        yield {**found, **entry.case, "series": entry.contender, "kind": kind, "good": len(entry.good)}


#: Part of a link's packets that makes it a full one.
FULL = 0.98
#: Beginnings of the names of contenders that are Ringtap.
OURS = ("tap ", "xdp", "packet", "ringtap")


def totals(rows: list[Row]) -> list[Row]:
    """Total lost of how many, by contender."""
    found: dict[str, Row] = {}
    for row in rows:
        one = found.setdefault(row["series"], {"series": row["series"], "kind": row["kind"], "lost": 0, "offered": 0})
        one["lost"] += row["lost_sum"]
        one["offered"] += row["offered_sum"]
    return [{**one, "loss_percent": 100.0 * one["lost"] / one["offered"]} for one in found.values() if one["offered"]]


#: Trials whose median hides the noise of one.
WINDOW = 5


def _curves(rows: list[Row], titles: dict[str, str]) -> Iterator[Row]:
    """Rows of each curve by offered rate. `smooth` is the median over neighbouring rates, `of_most` that median divided
    by the highest one at this or a lower rate. `titles` are the figures by load and cores."""
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        title = titles[f"{row['load']}, {row['cores']}"]
        lines.setdefault((title, row["series"]), []).append({**row, "rate": int(row["rate"].removesuffix("pps"))})
    for (title, _), line in lines.items():
        line.sort(key=lambda row: row["rate"])
        analysed = [row["read_pps"] for row in line]
        smooth = [statistics.median(_around(analysed, at)) for at in range(len(line))]
        for at, row in enumerate(line):
            part = row["delivered"] / row["captured"]
            yield {**row, "figure": title, "analysed": analysed[at], "captured": analysed[at] / part,
                   "smooth": smooth[at], "of_most": smooth[at] / max(smooth[: at + 1]),
                   "in_vain_percent": 100.0 * (1 - part)}  # fmt: skip


def _around(values: list[float], at: int) -> list[float]:
    """The neighbours of a value, as many at the ends as in the middle."""
    first = max(0, min(at - WINDOW // 2, len(values) - WINDOW))
    return values[first : first + WINDOW]
