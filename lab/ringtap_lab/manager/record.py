# SPDX-License-Identifier: MIT OR Apache-2.0
"""A record: a folder with what a battery measured, by date and host.

Invariants
- A row is on the disk before the next case begins.
- A row that was cut short by a crash is not taken for a row.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

#: Changes when a name in the files changes its meaning.
SCHEMA = 1
HEAD, ROWS = "head.json", "rows.jsonl"


class RecordError(Exception):
    """A record cannot be read, or cannot be written."""


class Record:
    """One record on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, parent: Path, battery: str, head: dict[str, Any]) -> Record:
        """Makes a record named by date, host and battery."""
        now = datetime.datetime.now(datetime.UTC)
        host = re.sub(r"[^\w.-]", "_", platform.node()) or "host"
        record = cls(parent / f"{now:%Y-%m-%dT%H%M%S}Z-{host}-{battery}")
        record.folder.mkdir(parents=True)
        whole = {"schema": SCHEMA, "date": f"{now:%Y-%m-%dT%H:%M:%SZ}", "host": host, "battery": battery, **head}
        record._write(HEAD, json.dumps(whole, indent=1) + "\n", "w")
        record._write(ROWS, "", "w")
        return record

    def head(self) -> dict[str, Any]:
        """Machine, versions and settings."""
        try:
            found: dict[str, Any] = json.loads((self.folder / HEAD).read_text())
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.folder}: not a record: {error}") from None
        if found.get("schema") != SCHEMA:
            raise RecordError(f"{self.folder}: schema {found.get('schema')}, this program reads {SCHEMA}")
        return found

    def rows(self) -> list[dict[str, Any]]:
        """All whole rows."""
        try:
            *lines, cut = (self.folder / ROWS).read_text().split("\n")
        except OSError as error:
            raise RecordError(f"{self.folder}: not a record: {error}") from None
        if cut:
            # The next row must not be glued to a half one.
            os.truncate(self.folder / ROWS, sum(len(line.encode()) + 1 for line in lines))
        return [json.loads(line) for line in lines]

    def append(self, row: dict[str, Any]) -> None:
        """Writes a row; prints it if the disk refuses it, so that nothing measured is lost."""
        text = json.dumps(row) + "\n"
        try:
            self._write(ROWS, text, "a")
        except OSError as error:
            print(text, file=sys.stderr, flush=True)
            raise RecordError(f"{self.folder}: {error}: the last row stands above; free space, then --resume") from None

    def _write(self, name: str, text: str, mode: str) -> None:
        # The folder may be a user's while root measures: root follows no link in it.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_APPEND if mode == "a" else os.O_TRUNC)
        with os.fdopen(os.open(self.folder / name, flags, 0o644), mode) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        give_to_user(self.folder / name)
        give_to_user(self.folder)


def give_to_user(path: Path) -> None:
    """Gives a file to the user that called sudo."""
    if "SUDO_UID" in os.environ:
        os.chown(path, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]), follow_symlinks=False)
