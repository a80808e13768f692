# SPDX-License-Identifier: MIT OR Apache-2.0
"""A running capture."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from . import _native
from ._batch import Batch, PacketSource


class FlowEvents(NamedTuple):
    """Ends of flows."""

    #: Each as `ringtap rules watch --json` prints it: flow, why, directions.
    events: list[dict[str, Any]]
    #: Ends that came while 4,096 waited.
    lost: int


class Capture(PacketSource[_native.NativeCapture]):
    """A running capture. Iterating gives packets; `batches` gives many at a time."""

    def __init__(self, native: _native.NativeCapture) -> None:
        self._native = native
        self._taking: asyncio.Future[_native.Batch | None] | None = None

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """Batches for `async for`: what comes in a tenth of a second, up to about 65,536 packets. A thread waits.

        The batch for which a cancelled task waited is the first one of the next `async for`."""
        while (batch := await self._next_batch()) is not None:
            if len(batch):
                yield Batch(batch)

    async def _next_batch(self) -> _native.Batch | None:
        taking, loop = self._taking, asyncio.get_running_loop()
        if taking is None or taking.get_loop() is not loop:
            taking = loop.run_in_executor(None, self._native.take, 65536, 0.1)
        self._taking = taking
        try:
            batch = await asyncio.shield(taking)
        except Exception:
            self._taking = None
            raise
        # A cancelled task comes not so far, and leaves the batch.
        self._taking = None
        return batch

    @property
    def counters(self) -> dict[str, Any]:
        """What became of every packet, as `ringtap count --json` has it."""
        return json.loads(self._native.counters())

    @property
    def facts(self) -> dict[str, Any]:
        """The source: device, link_type, snap_length_bytes, notes, offered_from."""
        return json.loads(self._native.facts())

    def explain(self) -> str:
        """What became of every packet, in words, with what helps against losses."""
        return self._native.account()

    def set_filter(self, filter: str) -> None:
        """Changes the filter; batches taken from now on pass it."""
        self._native.set_filter(filter)

    def flow_rule(
        self,
        flow: str,
        *,
        cutoff: str | None = None,
        sample: int | None = None,
        mirror: str | None = None,
        forward: str | None = None,
        seconds: float | None = None,
    ) -> None:
        """Sets a rule for a flow, `tcp 10.0.0.1:80 10.0.0.2:5000`, or those of a pattern, `udp net 10.0.0.0/8`.

        Without an action it withholds the packets from this capture. `cutoff`: only those past it, `20 packets` or
        `16KiB` of each direction. `sample`: all but one in so many. `mirror`: none, and this group of the hub gets
        them, too; `forward`: it gets them instead. `seconds`: the rule ends then.
        """
        self._native.flow_rule(
            flow, cutoff=cutoff, sample=sample, mirror=mirror, forward=forward, seconds=seconds
        )

    def remove_flow_rule(self, flow: str) -> bool:
        """Removes the rule for a flow or a pattern; false if there is none."""
        return self._native.remove_flow_rule(flow)

    def flow_rules(self) -> list[dict[str, Any]]:
        """The rules in force, as `ringtap rules list --json` prints them."""
        return json.loads(self._native.flow_rules())

    def flow_events(self, timeout: float = 0.0) -> FlowEvents:
        """Ends of flows since the last call; waits up to `timeout` seconds for the first."""
        events, lost = self._native.flow_events(timeout)
        return FlowEvents(json.loads(events), lost)

    def record(self, file: str, **options: Any) -> dict[str, Any]:
        """Records until the capture ends; options: size, seconds, keep, compress, packets, duration."""
        packets, files, last = self._native.record(file, **options)
        return {"packets": packets, "files": files, "file": last}

    def stop(self) -> None:
        """Ends the source, from any thread; iterating gives what is left, and ends."""
        self._native.stop()

    def close(self) -> None:
        """Ends the capture; batches that are kept stay readable."""
        self._native.close()
