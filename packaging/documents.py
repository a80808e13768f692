#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Copies the documents into one folder, for packages; a link to what the packages do not have becomes plain text.

usage: packaging/documents.py FOLDER
       packaging/documents.py --check FOLDER    fails if a link of the documents there leads nowhere
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
#: Files that scripts/package puts beside the documents.
BESIDE = ("ringtap.rules.yml", "ringtap.json", "ringtap-extcap", "LICENSE-APACHE", "LICENSE-MIT")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
#: The indexes of folders have the name of that of docs.
RENAMED = {Path("internals/README.md"): "internals.md", Path("figures/README.md"): "figures.md"}


def is_elsewhere(target: str) -> bool:
    return bool(re.match(r"[a-z]+:", target)) or target.startswith("#")


def flat_name(page: Path) -> str:
    """Name of a page of docs, by its path in there, in the only folder."""
    return RENAMED.get(page, page.name)


def flattened(text: str, page: Path, pages: dict[Path, str]) -> str:
    def link(match: re.Match[str]) -> str:
        image, words, target = match.groups()
        if is_elsewhere(target):
            return match.group()
        path, _, anchor = target.partition("#")
        found = Path(os.path.normpath(page.parent / path))
        name = pages.get(found) or (found.name if found.name in BESIDE else None)
        if name is None or image:
            return words
        return f"[{words}]({name}{'#' + anchor if anchor else ''})"

    return LINK.sub(link, text)


def copy(folder: Path) -> None:
    found = sorted(page.relative_to(DOCS) for page in DOCS.rglob("*.md"))
    pages = {page: flat_name(page) for page in found}
    if len(set(pages.values())) != len(pages):
        sys.exit("documents: two pages have one name")
    for page, name in pages.items():
        text = flattened((DOCS / page).read_text(), page, pages)
        (folder / name).write_text(text)


def dead_links(folder: Path) -> list[str]:
    dead = []
    for page in sorted(folder.glob("*.md")):
        for _, _, target in LINK.findall(page.read_text()):
            if not is_elsewhere(target) and not (folder / target.partition("#")[0]).exists():
                dead.append(f"{page.name}: {target}")
    return dead


def main() -> None:
    match sys.argv[1:]:
        case ["--check", folder]:
            dead = dead_links(Path(folder))
            if dead:
                sys.exit("documents: dead links: " + ", ".join(dead))
        case [folder]:
            copy(Path(folder))
        case _:
            sys.exit(__doc__)


main()
