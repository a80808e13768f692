# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rows of a record brought together: by group of cases and contender, over the repetitions.

Invariants
- A row at fault is counted and listed; no figure is computed from it.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from ringtap_lab.formatters.intervals import Interval, interval
from ringtap_lab.manager.aims import NOTHING, derived, unit_of
from ringtap_lab.manager.battery import Case

#: Columns of tables: name in a row, heading, factor, digits.
COLUMNS = (
    ("lossless_pps", "Mpps without loss", 1e-6, 3),
    ("delivered_pps", "Mpps delivered", 1e-6, 3),
    ("offered_pps", "Mpps offered", 1e-6, 3),
    ("loss_percent", "% lost", 1.0, 3),
    ("ns_above_floor", "ns a packet above XDP_DROP", 1.0, 0),
    ("ns_above_nothing", "ns a packet above nothing", 1.0, 0),
    ("rate_off_percent", "% off the rate", 1.0, 3),
    ("seconds", "seconds", 1.0, 4),
    ("cpu_seconds", "seconds of processors", 1.0, 3),
    ("cpu_pps", "Mpps of a core", 1e-6, 3),
    ("cpu_gb_per_s", "GB/s of a core", 1.0, 3),
    ("mb_per_s", "MB/s", 1.0, 1),
    ("off_percent", "% off the right counts", 1.0, 3),
    ("cpu_percent", "% of a core", 1.0, 2),
    ("server_cpu_percent", "% of a core, server", 1.0, 2),
    ("memory_kib", "MiB of memory", 1 / 1024, 1),
    ("settled_grown_kib", "KiB of memory more after the warm-up", 1.0, 0),
    ("server_thread_percent", "% of a core, server's thread", 1.0, 2),
    ("attempts", "attempts", 1.0, 0),
    ("visits", "visits", 1.0, 0),
    ("kills", "kills", 1.0, 0),
    ("nic_dropped", "dropped by the NIC", 1.0, 0),
    ("outages", "outages", 1.0, 0),
    ("unseen", "received, but seen by no program", 1.0, 0),
    ("server_descriptors_grown", "descriptors more, server", 1.0, 0),
    ("server_mappings_grown", "mappings more, server", 1.0, 0),
    ("server_grown_kib", "MiB more, server", 1 / 1024, 1),
    ("server_logged_bytes", "bytes logged, server", 1.0, 0),
    ("median_ns", "µs to the reader, median", 1e-3, 1),
    ("p99_ns", "µs to the reader, p99", 1e-3, 1),
    ("sent_median_ns", "µs since sent, median", 1e-3, 1),
    ("written_bytes", "GB written", 1e-9, 2),
    ("requests_ps", "requests/s", 1.0, 0),
    ("kbits_ps", "Gbit/s", 1e-6, 2),
    ("rtt_mean_ns", "µs round trip, mean", 1e-3, 2),
    ("rtt_p99_ns", "µs round trip, p99", 1e-3, 1),
)


def column(key: str) -> tuple[str, str, float, int]:
    """The column of a figure; of one that a contender has of its own, its name and unit."""
    for one in COLUMNS:
        if one[0] == key:
            return one
    factor, unit = unit_of(key)
    words = [key.rpartition("_")[0], unit] if unit else [key]
    return key, ", ".join(word for word in words if word), factor, 3


#: The figure that a method measures.
OF_METHOD = {"lossless": "lossless_pps", "rate": "delivered_pps", "command": "seconds"}


@dataclass(frozen=True)
class Entry:
    """One contender in one group of cases."""

    group: str
    #: Its name within the group.
    contender: str
    case: dict[str, Any]
    good: list[dict[str, Any]]
    #: Repetitions at fault, and what was wrong in each.
    bad: list[int]
    faults: list[str]

    def values(self, key: str) -> list[float]:
        """A figure of every good repetition that has it."""
        return [float(row[key]) for row in self.good if row.get(key) is not None]

    @property
    def main(self) -> tuple[str, str, float, int]:
        """The column of the figure that was to be measured: of a service, the first that its client says."""
        return column(next(iter(self.served), OF_METHOD[self.case["method"]]))

    @property
    def served(self) -> dict[str, int]:
        """What the client of its service said first; empty if it has none."""
        return dict(self.good[0].get("served", {})) if self.good else {}

    def spread(self, key: str) -> tuple[float, float, float] | None:
        """Median, least and most; None if no good repetition has it."""
        values = self.values(key)
        return (statistics.median(values), min(values), max(values)) if values else None


def columns(several: list[Entry]) -> list[tuple[str, str, float, int]]:
    """Those that one of these entries has."""
    known = [one[0] for one in COLUMNS]
    own = [key for entry in several for row in entry.good for key in (*row.get("served", ()), *row.get("shown", ()))]
    return [column(key) for key in dict.fromkeys([*known, *own]) if any(entry.values(key) for entry in several)]


def entries(rows: list[dict[str, Any]]) -> list[Entry]:
    """All groups and contenders, in the order in which they were first measured."""
    found: dict[str, Entry] = {}
    for row in derived(rows):
        new = Entry(row["group"], Case(**row["case"]).label, row["case"], [], [], [])
        entry = found.setdefault(row["key"], new)
        if row["problems"]:
            entry.bad.append(row["repetition"])
            where = f"{entry.group}, {entry.contender}, repetition {row['repetition'] + 1}"
            entry.faults.extend(f"{where}: {one}" for one in row["problems"])
        else:
            entry.good.append(row)
    return list(found.values())


def groups(rows: list[dict[str, Any]]) -> dict[str, list[Entry]]:
    """Entries by group; within a group, the repetition that ran first decides the order by name."""
    found: dict[str, list[Entry]] = {}
    for entry in entries(rows):
        found.setdefault(entry.group, []).append(entry)
    return found


def against_nothing(several: list[Entry]) -> dict[str, dict[str, Interval]]:
    """Figures of a service beside each contender, divided by those beside no capture, repetition by repetition.

    By contender and figure; nothing where the group has no such baseline."""
    rows = {entry.contender: {row["repetition"]: row["served"] for row in entry.good if "served" in row}
            for entry in several}  # fmt: skip
    base = rows.pop(NOTHING, {})
    found: dict[str, dict[str, Interval]] = {}
    for name, each in rows.items():
        pairs = [(served, base[repetition]) for repetition, served in each.items() if repetition in base]
        for figure in pairs[0][0] if pairs else ():
            ratios = [served[figure] / other[figure] for served, other in pairs]
            if one := interval([1.0] * len(ratios), ratios):
                found.setdefault(name, {})[figure] = one
    return found


#: Other work and the hypervisor's on the readers' core that make a row doubtful, as part of the time that was sent.
DISTURBED = 0.05


def notes(rows: list[dict[str, Any]]) -> list[str]:
    """What a reader of the figures must know first."""
    found = []
    sent = [row for row in rows if "elapsed_ns" in row]
    for key, text in (("disturbed_ms", "other work"), ("stolen_ms", "the hypervisor")):
        count = sum(row.get(key, 0) * 1e6 > DISTURBED * row["elapsed_ns"] for row in sent)
        if count:
            found.append(f"in {count} of {len(sent)} trials {text} took more than {DISTURBED:.0%} of the readers' core")
    loss = max((row["goals"][0]["loss"] for row in rows if row.get("goals")), default=0.0)
    found += [f"a rate counts as without loss if at most {loss:.1%} is lost"] * bool(loss)
    fault = sum(bool(row["problems"]) for row in rows)
    return [*found, f"{fault} of {len(rows)} rows are at fault, listed below"] if fault else found


def machine_lines(head: dict[str, Any]) -> list[str]:
    """Each machine in one sentence."""
    found = []
    for name, facts in head["machines"].items():
        virtual = " (virtual)" if facts["virtual"] else ""
        clock, mhz = facts["clock"], f" at {facts['mhz']} MHz" if facts.get("mhz") else ""
        found.append(
            f"{name}: {facts['cpu']}{mhz}, {facts['cores']} cores{virtual}, {facts['memory_mib']} MiB, "
            f"frequency governor {facts['governor']}, Linux {facts['kernel']}, {facts['system']}; "
            f"load {facts['load_average']:.2f} when the run began; its clock differs by {clock['difference_ms']} ms "
            f"(± {clock['uncertainty_ms']} ms)"
        )
    return found
