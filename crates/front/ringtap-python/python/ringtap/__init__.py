# SPDX-License-Identifier: MIT OR Apache-2.0
"""Packets of a shared capture: in place, as Arrow tables and NumPy arrays.

>>> import ringtap
>>> with ringtap.open("sim:max?burst=1000") as capture:
...     sum(packet.wire_length for packet in capture)
60000
"""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from . import _native
from ._native import (
    ClosedError,
    DeviceError,
    Error,
    FilterError,
    ForkError,
    HubError,
    HubLeftError,
    InterfaceRemovedError,
    OpenError,
    Packet,
    RecordError,
    SourceError,
)

__all__ = [
    "SLOT",
    "Batch",
    "Capture",
    "ClosedError",
    "DeviceError",
    "Error",
    "FilterError",
    "Flag",
    "ForkError",
    "HubError",
    "HubLeftError",
    "InterfaceRemovedError",
    "OpenError",
    "Packet",
    "RecordError",
    "SourceError",
    "open",
    "status",
    "why",
]

#: Fields of a slot for numpy.dtype; `captured` has the flags in its upper eight bits.
SLOT = {
    "names": ["time_ns", "mask", "hash", "wire_length", "captured", "flags", "queue"],
    "formats": ["<u8", "<u8", "<u4", "<u4", "<u4", "u1", "<u2"],
    "offsets": [0, 8, 16, 20, 24, 27, 30],
    "itemsize": 32,
}


class Flag(enum.IntFlag):
    """Bits of a packet's flags."""

    OUT = 0x01
    VLAN_RESTORED = 0x02
    HASHED = 0x04
    PARTIAL_CHECKSUM = 0x08
    SUPER = 0x10
    NIC_TIME = 0x20


class Batch:
    """Packets that were taken together.

    They lie in the capture's pool until the batch, and everything made of it without a copy, is gone, and count
    against the reader's credit until then: `copy` frees the pool.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Batch) -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    def __iter__(self) -> Iterator[Packet]:
        return iter(self._native)

    def __getitem__(self, index: int) -> Packet:
        return self._native[index]

    def copy(self) -> Batch:
        """The same packets in memory of their own."""
        return Batch(self._native.copy())

    def columns(
        self,
        *,
        headers: bool = True,
        text: bool = False,
        community_id: bool | int = False,
        inner: bool = False,
        data: bool = True,
    ) -> _native.Table:
        """Columns for any program with the Arrow PyCapsule interface: polars, pandas, DuckDB, pyarrow.

        `headers`: vlan to payload_offset. `text`: addresses as text, not as 4 or 16 bytes. `community_id`: true, or a
        seed. `inner`: the packets inside tunnels. `data`: the captured bytes, in place.
        """
        seed = None if community_id is False else int(community_id is not True and community_id)
        return self._native.table(headers=headers, text=text, community_id=seed, inner=inner, data=data)

    def arrow(self, **options: Any) -> Any:
        """As `columns`, as pyarrow.RecordBatch."""
        import pyarrow

        return pyarrow.record_batch(self.columns(**options))

    def __arrow_c_schema__(self) -> Any:
        return self.columns().__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.columns().__arrow_c_array__(requested_schema)

    def numpy(self) -> Any:
        """The slots as a structured array: of one chunk without a copy; of several, 32 bytes a packet are copied."""
        import numpy

        slots = numpy.dtype(SLOT)
        return numpy.frombuffer(self._native.slots(), dtype=slots) if len(self) else numpy.empty(0, dtype=slots)

    def to_scapy(self) -> list[Any]:
        """The packets as scapy's, with their times. Ethernet only."""
        # Layers above Ethernet are known once their modules are loaded.
        import scapy.layers.all
        from scapy.layers.l2 import Ether

        packets = []
        for packet in self:
            made = Ether(bytes(packet))
            made.time = packet.time
            packets.append(made)
        return packets


class Capture:
    """A running capture. Iterating gives packets; `batches` gives many at a time."""

    def __init__(self, native: _native.NativeCapture) -> None:
        self._native = native

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Packet]:
        take = self._native.take
        while (batch := take(None, None)) is not None:
            yield from batch

    def batches(self, packets: int | None = None, timeout: float | None = None) -> Iterator[Batch]:
        """Batches until the capture ends.

        Without `packets`, a batch has the packets of one chunk. With `packets`, it has those that wait, up to about
        that many; with `timeout` too, it gathers them for at most that many seconds. After `timeout` seconds without
        a packet, a batch is empty.
        """
        take = self._native.take
        while (batch := take(packets, timeout)) is not None:
            yield Batch(batch)

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """Batches for `async for`: what comes in a tenth of a second, up to about 65,536 packets. A thread waits."""
        while (batch := await asyncio.to_thread(self._native.take, 65536, 0.1)) is not None:
            if len(batch):
                yield Batch(batch)

    def pairs(self) -> Iterator[tuple[float, bytes]]:
        """Time and bytes of each packet, as dpkt.pcap.Reader gives them."""
        for packet in self:
            yield packet.time, bytes(packet)

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


def open(device: str, **options: Any) -> Capture:
    """Opens a device (`eth0`, `hub:ids`, `host:ids`, `sim:1Mpps`) or a capture file (`pcap:FILE`).

    Options: filter, snap_length, name, credit (chunks), in_order (seconds), private, socket,
    watermark (packets, seconds).
    """
    is_file = device.endswith((".pcap", ".pcapng", ".cap")) and not device.startswith("pcap:")
    return Capture(_native.open(f"pcap:{device}" if is_file else device, **options))


def why(interval: float = 1.0, socket: str | None = None) -> list[dict[str, Any]]:
    """Where a hub lost packets, as `ringtap why` finds it: text, kind, lost_packets, advice."""
    return json.loads(_native.explain_hub(interval, socket))


def status(socket: str | None = None) -> dict[str, Any]:
    """All counters of a hub, as `ringtap status` prints them."""
    return json.loads(_native.hub_status(socket))
