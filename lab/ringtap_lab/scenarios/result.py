# SPDX-License-Identifier: MIT OR Apache-2.0
"""The result of a run: what was measured, where, how quiet it was, and the verdicts."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ringtap_lab.scenarios import contenders, goals, machine, report
from ringtap_lab.scenarios.run import Run

#: Changes when a name in the JSON changes its meaning.
SCHEMA = 1
#: Stolen time, and other work on the reader's core, that make a measurement doubtful.
DISTURBED_SHARE = 0.05
#: How long a run waits for other work, such as its own build, to end.
PATIENCE_SECONDS = 60


def head(run: Run, command: str, root: Path) -> dict:
    """All that is known before anything is measured."""
    return {
        "schema": SCHEMA,
        "date": machine.now(),
        "command": command,
        "revision": machine.revision(root),
        "machine": machine.facts(),
        "tools": machine.versions(run.programs.ringtap),
        "settings": vars(run.settings),
        "layout": {
            "sender_cpu": contenders.SENDER_CPU,
            "reader_cpu": contenders.READER_CPU,
            "ring_mib": contenders.RING_MIB,
        },
        "sender_command": run.programs.fill(
            contenders.SEND, size="SIZE", rate="RATE", seconds="SECONDS"
        ),
        "quiet": machine.wait_quiet(PATIENCE_SECONDS),
    }


def finish(result: dict, run: Run) -> None:
    """Adds verdicts, faults, and what a reader of the figures must know first."""
    result["goals"] = goals.evaluate(result)
    result["problems"] = run.problems
    result["notes"] = notes(result, run.settings.is_full())


def notes(result: dict, full: bool) -> list[str]:
    """What a reader of the figures must know first."""
    found = []
    if not full:
        found.append("this was no full run: its figures are only rough")
    busy, load = result["quiet"]["busy_share"], result["quiet"]["load_average"]
    if busy > machine.BUSY_SHARE:
        found.append(f"other programs kept {busy:.0%} of the cores busy when the run began")
    if load > machine.BUSY_LOAD:
        found.append(f"load average {load:.2f} when the run began; it remembers the last minute")
    for key, text in (("disturbed_ms", "other work"), ("stolen_ms", "the hypervisor")):
        rows = _capture_rows(result)
        count = sum(row[key] * 1e6 > DISTURBED_SHARE * row["elapsed_ns"] for row in rows)
        if count:
            found.append(
                f"in {count} of {len(rows)} measurements at full speed {text} took more than"
                f" {DISTURBED_SHARE:.0%} of the reader's core"
            )
    if result["problems"]:
        found.append(f"{len(result['problems'])} faults, listed with the result")
    return found


def _capture_rows(result: dict) -> list[dict]:
    sizes = result.get("capture", {}).values()
    return [row for size in sizes for entry in size.values() for row in entry["rounds"]]


def write(result: dict, folder: Path) -> list[Path]:
    """Writes the JSON and the Markdown, owned by the user that called sudo; returns their paths."""
    texts = {"latest.json": json.dumps(result, indent=1) + "\n", "latest.md": report.markdown(result)}
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in texts.items():
        path = folder / name
        path.write_text(text)
        if "SUDO_UID" in os.environ:
            os.chown(path, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))
        paths.append(path)
    return paths
