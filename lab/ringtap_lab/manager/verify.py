# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks a record that somebody else submitted.

Invariants
- The record is not changed, and nothing in it is trusted to have the right type.
- Every figure of a row that the accounts of the same row give is computed again.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ringtap_lab.manager import filters, service
from ringtap_lab.manager.battery import Battery, Case, parse
from ringtap_lab.manager.counts import contradictions
from ringtap_lab.manager.inventory import InventoryError
from ringtap_lab.manager.record import HEAD, ROWS, Record

#: Checksums of the record's files, as `sha256sum` writes them.
SUMS = "SHA256SUMS"
#: What must be known of each machine.
FACTS = ("cpu", "cores", "memory_mib", "kernel", "system", "governor", "clock")
#: What a row of the wrong form raises.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, InventoryError)
#: More turns than this are no battery that somebody ran.
MOST_TURNS = 100_000


def faults(folder: Path) -> tuple[list[str], list[str]]:
    """Everything that is wrong with a record, and what its readers must know."""
    found = list(_sums(folder))
    try:
        head = Record(folder).head()
        battery = parse(head["text"], head["battery"], "its battery")
        turns = sum(count for _, count in battery.cases)
        if not 0 < turns <= MOST_TURNS:
            return [*found, f"{HEAD}: its battery has {turns} turns"], []
        found += _machines(head)
        contenders = {name: (one["version"], one["missing"]) for name, one in head["contenders"].items()}
    except MALFORMED as error:
        return [*found, f"{HEAD}: {_told(error)}"], []
    missing = {name: why for name, (_, why) in contenders.items() if why}
    found += [f"{name}: no version is named" for name, (version, why) in contenders.items()
              if not why and version in ("", "unknown")]  # fmt: skip
    rows, broken = _read(folder)
    try:
        found += [*broken, *_complete(battery, rows, set(missing), set(contenders))]
    except MALFORMED as error:
        found += [f"{HEAD}: its battery {_told(error)}"]
    for number, row in rows:
        where = f"{ROWS}: row {number}"
        try:
            found += [f"{where}: {one}" for one in _row(row, battery)]
        except MALFORMED as error:
            found.append(f"{where}: {_told(error)}")
    return found, [f"{name} was not measured: {why}" for name, why in missing.items()]


def _told(error: Exception) -> str:
    return f"lacks {error}" if isinstance(error, KeyError) else f"is malformed: {error}"


def _sums(folder: Path) -> Iterator[str]:
    """Files that differ from their checksums, if there are checksums."""
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        yield f"{SUMS}: {error}"
        return
    listed = set()
    for line in lines:
        one = re.fullmatch(r"([0-9a-f]{64}) [ *](?:\./)?([\w.-]+)", line)
        if not one:
            yield f"{SUMS}: not a checksum of a file in this folder: {line[:80]!r}"
            continue
        listed.add(one[2])
        try:
            same = hashlib.sha256((folder / one[2]).read_bytes()).hexdigest() == one[1]
        except OSError as error:
            yield f"{SUMS}: {error}"
            continue
        if not same:
            yield f"{one[2]}: is not the file whose checksum stands in {SUMS}"
    yield from (f"{SUMS}: has no checksum of {name}" for name in (HEAD, ROWS) if name not in listed)


def _machines(head: dict[str, Any]) -> Iterator[str]:
    """Machines that are not described, and roles that nobody had."""
    for name, facts in head["machines"].items():
        yield from (f"{name}: its {fact} is not named" for fact in FACTS if not facts.get(fact))
    roles = {role for host in head["layout"].values() for role in host["roles"]}
    yield from (f"no machine was the {role}" for role in ("injector", "sensor") if role not in roles)
    yield from (f"{name}: its machine is not described" for name in head["layout"] if name not in head["machines"])
    yield from (f"{HEAD}: {name} is empty" for name in ("title", "date", "host", "sender") if not head[name])


def _read(folder: Path) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    """Rows with their numbers, and lines that are none."""
    try:
        text = (folder / ROWS).read_text()
    except (OSError, ValueError) as error:
        return [], [f"{ROWS}: {error}"]
    rows, broken = [], [] if text.endswith("\n") or not text else [f"{ROWS}: the last row is cut short"]
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append((number, row))
        else:
            broken.append(f"{ROWS}: row {number}: is no row")
    return rows, broken


def _complete(battery: Battery, rows: list[tuple[int, dict[str, Any]]], missing: set[str], known: set[str]
              ) -> Iterator[str]:  # fmt: skip
    """Turns of the battery without a row, and rows that belong to no turn or come twice."""
    turns = {(turn.case.key, turn.repetition): turn.case for turn in battery.turns()}
    there = Counter((str(row.get("key")), str(row.get("repetition"))) for _, row in rows)
    wanted = {(key, str(repetition)): case for (key, repetition), case in turns.items()}
    for (key, repetition), case in wanted.items():
        where = f"{case.group}, {case.contender}, repetition {int(repetition) + 1}"
        if (case.names - {case.contender}) & missing:
            continue
        if case.contender not in known:
            yield f"{case.contender}: is in the battery, but not described in {HEAD}"
        elif case.contender not in missing and not there[key, repetition]:
            yield f"{where}: is missing"
        elif case.contender in missing and there[key, repetition]:
            yield f"{where}: was measured, but is said to be not installed"
        if there[key, repetition] > 1:
            yield f"{where}: is there {there[key, repetition]} times"
    for number, row in rows:
        if (str(row.get("key")), str(row.get("repetition"))) not in wanted:
            yield f"{ROWS}: row {number}: its case is not one of the battery"


def _row(row: dict[str, Any], battery: Battery) -> list[str]:
    """What is wrong in one row."""
    case = Case(**row["case"])
    found = [] if case.key == row["key"] and case.group == row["group"] else ["its key is not that of its case"]
    found += [f"at fault: {one}" for one in row["problems"]]
    if row["problems"]:
        return found
    if case.method == "command":
        return found + ([] if row["seconds"] > 0 and row["cpu_seconds"] >= 0 else ["it took no time"])
    if case.method != "lossless":
        return found + account(case, row)
    for trial in row["trials"]:
        found += [f"at {trial['rate']}: {one}" for one in [*trial["problems"], *account(case, trial)]]
    loss = battery.goals[0].loss
    best = max((one["offered_pps"] for one in row["trials"] if one["lost"] <= loss * one["offered"]), default=0.0)
    if row["lossless_pps"] > best * (1 + 1e-9):
        found.append(f"{row['lossless_pps']:.0f} packets/s without loss, but no trial without loss had more "
                     f"than {best:.0f}")  # fmt: skip
    return found


def account(case: Case, row: dict[str, Any]) -> list[str]:
    """What the accounts of one trial do not agree on."""
    if case.service:
        return _service(case, row)
    offered, readers = row["offered"], row["readers"]
    found = [] if (offered > 0 or case.rate == "none") and row["elapsed_ns"] > 0 else ["nothing was sent"]
    found += [] if len(readers) == case.readers else [f"{len(readers)} readers counted, the case has {case.readers}"]
    # With filters, what a reader should get is not in its row.
    for number, counts in enumerate(readers if getattr(case, "filters", "none") == "none" else [], 1):
        against = contradictions(counts, offered, row["received"], nic_dropped=row.get("nic_dropped", 0))
        found += [f"reader {number}: {one}" for one in against]
        found += [f"reader {number}: {name} is {count}" for name, count in counts.items() if count < 0]
    if found:
        return found
    figures = {"delivered_pps": row["delivered"] * 1e9 / row["elapsed_ns"],
               "offered_pps": offered * 1e9 / row["elapsed_ns"]}  # fmt: skip
    if not any(one.get("shunted") for one in readers):
        figures["loss_percent"] = 100 * (offered - row["delivered"]) / offered if offered else 0.0
    if getattr(case, "filters", "none") == "none":
        figures["delivered"] = min(one["delivered"] for one in readers)
        figures["lost"] = sum(offered - one.get("shunted", 0) - one["delivered"] for one in readers)
    return [f"{name} is {row[name]}, its accounts give {value:g}" for name, value in figures.items()
            if not math.isclose(row[name], value, rel_tol=1e-6, abs_tol=1e-6)]  # fmt: skip


def _service(case: Case, row: dict[str, Any]) -> list[str]:
    """The same of a row of a service."""
    readers, wanted = row["readers"], filters.of(case.filters, case.readers)
    if len(readers) != case.readers:
        return [f"{len(readers)} readers counted, the case has {case.readers}"]
    found = [f"reader {number}: {it}" for number, (counts, one) in enumerate(zip(readers, wanted, strict=True), 1)
             for it in service.contradictions(counts, one.part, row["passed"])]  # fmt: skip
    return found + [f"{name} is {row[name]}, its client said {value}" for name, value in row["served"].items()
                    if row[name] != value or value <= 0]  # fmt: skip
