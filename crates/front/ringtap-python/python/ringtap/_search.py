# SPDX-License-Identifier: MIT OR Apache-2.0
"""Searches of recordings."""

from __future__ import annotations

import datetime
import os
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import _native
from ._batch import Batch, PacketSource

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)


class IncompleteWarning(UserWarning):
    """A result lacks packets or flows."""


class Origin(NamedTuple):
    """Where packets were found."""

    file: os.PathLike[str]
    interface: str | None


class Search(PacketSource):
    """Found packets, in the order of their times. `packet.lane` is the number of the packet's origin."""

    def __init__(self, native: _native.NativeSearch) -> None:
        self._native = native

    def __iter__(self) -> Iterator[_native.Packet]:
        yield from super().__iter__()
        self._warn()

    def batches(self, packets: int | None = None, timeout: float | None = None) -> Iterator[Batch]:
        yield from super().batches(packets, timeout)
        self._warn()

    def _warn(self) -> None:
        notes, faults = self._native.notes()
        if faults:
            text = f"packets may be missing, for {faults} reasons; the first note of Search.notes is: {notes[0]}"
            warnings.warn(text, IncompleteWarning, stacklevel=3)

    @property
    def origins(self) -> list[Origin]:
        """File and interface of the packets so far; the index is `packet.lane`, and the column `lane`."""
        return [Origin(*origin) for origin in self._native.origins()]

    @property
    def notes(self) -> list[str]:
        """Files that are damaged or unreadable, and what else the user should know."""
        return self._native.notes()[0]

    @property
    def totals(self) -> dict[str, int]:
        """Packets, bytes, files, scanned_files (without index), scanned_bytes, blocks, vanished_files so far."""
        return dict(self._native.totals())


def time_ns(time: datetime.datetime | float | None) -> int | None:
    """Nanoseconds since 1970 of a datetime (local if it has no zone) or of seconds since 1970."""
    if time is None:
        return None
    if isinstance(time, datetime.datetime):
        return (time.astimezone(datetime.timezone.utc) - _EPOCH) // datetime.timedelta(microseconds=1) * 1000
    return int(time * 10**9)


def find(
    paths: str | os.PathLike[str] | list[str | os.PathLike[str]],
    filter: str = "",
    *,
    start: datetime.datetime | float | None = None,
    end: datetime.datetime | float | None = None,
    inner: bool = False,
) -> Search:
    """Packets of recordings that pass a filter, in the order of their times; indexes save reading.

    `paths`: files, and folders with files in and below them. `start`, `end` (not included): datetime, or seconds since
    1970. `inner`: the filter decides on the packet inside of tunnels.
    """
    all_paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    return Search(_native.find(all_paths, filter, time_ns(start), time_ns(end), inner))
