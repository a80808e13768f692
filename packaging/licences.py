#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prints name, version, licence and authors of each crate in the programs, then their licence texts.

usage: packaging/licences.py HOST-TRIPLE
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

PACKAGES = ("ringtap-cli", "ringtap-c", "ringtap-pcap")
#: C libraries that a crate brings have theirs one folder deeper.
TEXTS = ("LICEN[CS]E*", "COPYING*", "NOTICE*", "*/LICENSE*", "*/COPYING*")


def cargo(*words: str) -> str:
    done = subprocess.run(["cargo", *words, "--locked"], check=True, capture_output=True, text=True)
    return done.stdout


def needed(host: str) -> set[tuple[str, str]]:
    """Name and version of each crate that is linked, and of those that built it."""
    chosen = [word for name in PACKAGES for word in ("-p", name)]
    tree = cargo("tree", "-e", "no-dev", "--prefix", "none", "--target", host, *chosen)
    words = (line.split() for line in tree.splitlines() if line)
    return {(line[0], line[1].removeprefix("v")) for line in words}


def main(host: str) -> None:
    crates = json.loads(cargo("metadata", "--format-version", "1"))["packages"]
    wanted = needed(host)
    texts: dict[str, list[str]] = defaultdict(list)
    for crate in sorted(crates, key=lambda crate: (crate["name"], crate["version"])):
        if crate["source"] is None or (crate["name"], crate["version"]) not in wanted:
            continue
        name = f"{crate['name']} {crate['version']}"
        print(name, crate["license"] or crate["license_file"], ", ".join(crate["authors"]), sep="; ")
        folder = Path(crate["manifest_path"]).parent
        for file in sorted(file for pattern in TEXTS for file in folder.glob(pattern) if file.is_file()):
            if file.suffix not in (".rs", ".html"):
                text = file.read_text(errors="replace").strip()
                texts[text].append(f"{name}: {file.relative_to(folder)}")
    for text, names in texts.items():
        print("", "=" * 72, *names, "-" * 72, text, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
