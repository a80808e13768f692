# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command `scripts/checks`."""

from __future__ import annotations

import importlib
import sys

CHECKS = {
    "accuracy": "the probe's flows beside those of other programs",
    "recipes": "the recipes of the documents with real programs",
    "demo_vm": "two virtual machines read one capture",
    "picture": "picture of top and why for README.md",
    "attack.attacks": "one attack on a hub",
    "attack.pool": "try to write a pool",
    "tested": "which tests ran; for scripts/test",
}


def main(words: list[str]) -> int:
    """Runs a check; gives the exit status."""
    if not words or words[0] not in CHECKS:
        lines = [f"  {name:<15} {what}" for name, what in CHECKS.items()]
        print("usage: scripts/checks CHECK [ARGUMENTS...]\n", *lines, sep="\n", file=sys.stderr)
        return 2
    status: int = importlib.import_module(f"ringtap_checks.{words[0]}").main(words[1:])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
