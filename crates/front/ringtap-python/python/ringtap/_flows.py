# SPDX-License-Identifier: MIT OR Apache-2.0
"""Flow records as tables."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

from . import _native
from ._search import IncompleteWarning


class Flows:
    """Flows of a device or a file, as they end. Iterating gives tables, about one a second.

    DuckDB, polars and other programs with Arrow's PyCapsule interface read it as one stream.
    """

    def __init__(self, native: _native.NativeFlows) -> None:
        self._native = native

    def __enter__(self) -> Flows:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def tables(self) -> Iterator[_native.Table]:
        """Tables for any program with the Arrow PyCapsule interface."""
        while (table := self._native.take()) is not None:
            yield table
        for exporter in self.counters["exporters"]:
            if lost := exporter["dropped_queue_full"] + exporter["dropped_failed"]:
                warnings.warn(f"{lost} flow records were lost: too many waited", IncompleteWarning, stacklevel=2)

    def __iter__(self) -> Iterator[Any]:
        """The same as pyarrow.RecordBatch."""
        import pyarrow

        for table in self.tables():
            yield pyarrow.record_batch(table)

    def __arrow_c_schema__(self) -> object:
        return self._native.stream().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._native.stream().__arrow_c_stream__(requested_schema)

    @property
    def counters(self) -> dict[str, Any]:
        """The account of the probe, as `ringtap probe --json` prints it."""
        return json.loads(self._native.ledger())

    def stop(self) -> None:
        """Ends the source, from any thread; the flows so far follow."""
        self._native.stop()

    def close(self) -> None:
        """Ends the probe; flows that were not taken are lost."""
        self._native.close()
