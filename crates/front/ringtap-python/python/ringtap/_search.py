# SPDX-License-Identifier: MIT OR Apache-2.0
"""Searches of recordings."""

from __future__ import annotations

import datetime
import os
import pathlib
import warnings
from collections.abc import Generator, Iterable
from typing import Any, NamedTuple

from . import _native
from ._batch import Batch, PacketSource

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)


class IncompleteWarning(UserWarning):
    """A result lacks packets or flows."""


class Origin(NamedTuple):
    """Where packets were found."""

    file: pathlib.Path
    interface: str | None


class Search(PacketSource[_native.NativeSearch]):
    """Found packets, in the order of their times. `packet.lane` is the number of the packet's origin."""

    def __init__(self, native: _native.NativeSearch) -> None:
        self._native = native

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def __iter__(self) -> Generator[_native.Packet, None, None]:
        yield from super().__iter__()
        self._warn()

    def batches(self, packets: int | None = None, timeout: float | None = None) -> Generator[Batch, None, None]:
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
        """Packets, bytes, files, scanned_files (without index), scanned_bytes, blocks, vanished_files, failed_files so far."""
        return dict(self._native.totals())

    def close(self) -> None:
        """Ends the search; batches that are kept stay readable."""
        self._native.close()


def time_ns(time: datetime.datetime | float | None) -> int | None:
    """Nanoseconds since 1970 of a datetime (local if it has no zone) or of seconds since 1970."""
    if time is None:
        return None
    if isinstance(time, datetime.datetime):
        return (time.astimezone(datetime.timezone.utc) - _EPOCH) // datetime.timedelta(microseconds=1) * 1000
    return int(time * 10**9)


def _time_range(
    start: datetime.datetime | float | None, end: datetime.datetime | float | None
) -> tuple[int | None, int | None]:
    """Both times in nanoseconds since 1970, as 64 bits hold them."""
    start_ns, end_ns = time_ns(start), time_ns(end)
    if any(time is not None and not 0 <= time < 2**64 for time in (start_ns, end_ns)):
        raise ValueError("start and end: expected times from 1970 to 2554")
    if start_ns is not None and end_ns is not None and end_ns < start_ns:
        raise ValueError("end is before start")
    return start_ns, end_ns


def find(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    filter: str = "",
    *,
    start: datetime.datetime | float | None = None,
    end: datetime.datetime | float | None = None,
    inner: bool = False,
    community_id: str | None = None,
) -> Search:
    """Packets of recordings that pass a filter, in the order of their times; indexes save reading.

    `paths`: files, and folders with files in and below them. `start`, `end` (not included): datetime, or seconds since
    1970. `inner`: the filter decides on the packet inside of tunnels. `community_id`: only packets of the flow with this
    ID (version 1, seed 0).
    """
    all_paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    return Search(_native.find(all_paths, filter, *_time_range(start, end), inner, community_id))
