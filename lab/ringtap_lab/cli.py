# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command `ringtap-lab`."""

from __future__ import annotations

import importlib
import sys

#: Commands: module and what it does.
PROGRAMS = {
    "run": ("command", "measure a battery: contenders in turn, each row on disk at once"),
    "list": ("command", "batteries, contenders and records"),
    "show": ("command", "a record as tables, plots or a page"),
    "compare": ("command", "two records, with intervals"),
    "verify": ("command", "check a record that was submitted"),
    "figures": ("papers.command", "pages of published figures, ours beside the papers'"),
    "plan": ("planner.command", "queues, cores, pool, memory and disk that a link needs"),
    "bench": ("bench", "all batteries of the project's figures, and the page of their aims"),
}
#: Those of the module `command`, which reads the command's name itself.
BATTERY_COMMANDS = ("run", "list", "show", "compare", "verify")


def usage() -> str:
    """All commands, each with what it does."""
    lines = [f"  {name:<12} {what}" for name, (_, what) in PROGRAMS.items()]
    return "usage: ringtap-lab COMMAND [ARGUMENTS...]\n\n" + "\n".join(lines)


def main(words: list[str]) -> int:
    """Runs a command; gives the exit status."""
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0 if words else 2
    name, *rest = words
    if name not in PROGRAMS:
        print(f"ringtap-lab: there is no command {name!r}\n{usage()}", file=sys.stderr)
        return 2
    try:
        module = importlib.import_module(f"ringtap_lab.{PROGRAMS[name][0]}")
    except ModuleNotFoundError as error:
        print(f"ringtap-lab {name}: {error}: RINGTAP_LAB_PYTHON names a Python that has it", file=sys.stderr)
        return 2
    status: int = module.main(words if name in BATTERY_COMMANDS else rest)
    return status


def entry() -> None:
    """The installed command."""
    sys.exit(main(sys.argv[1:]))
