# SPDX-License-Identifier: MIT OR Apache-2.0
"""Batches of packets, and their columns."""

from __future__ import annotations

import enum
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _native
from ._native import Packet, Stream

if TYPE_CHECKING:
    # Types of the stub, not in the module.
    from ._native import StreamChoice

#: Fields of a slot for numpy.dtype; `captured` has the flags in its upper eight bits.
SLOT: Any = {
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
    MARKED = 0x40


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
        return self._native.table(column_choice(headers, text, community_id, inner, data))

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
        if len(self) == 0:
            return numpy.empty(0, dtype=slots)
        return numpy.frombuffer(memoryview(self._native.slots()), dtype=slots)

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


def column_choice(
    headers: bool = True,
    text: bool = False,
    community_id: bool | int = False,
    inner: bool = False,
    data: bool = True,
) -> _native.ColumnChoice:
    """The options of `Batch.columns` for the native part."""
    seed = None if community_id is False else int(community_id is not True and community_id)
    return {"headers": headers, "text": text, "community_id": seed, "inner": inner, "data": data}


Native = TypeVar("Native", bound="_native.NativeCapture | _native.NativeSearch")


class PacketSource(Generic[Native]):
    """Packets one by one, in batches, or as a stream of record batches."""

    _native: Native

    def __iter__(self) -> Generator[Packet, None, None]:
        take = self._native.take
        while (batch := take(None, None)) is not None:
            yield from batch

    def batches(self, packets: int | None = None, timeout: float | None = None) -> Generator[Batch, None, None]:
        """Batches until the end.

        Without `packets`, a batch has the packets that lie together. With `packets`, it has those that wait, up to
        about that many; with `timeout` too, it gathers them for at most that many seconds. After `timeout` seconds
        without a packet, a batch is empty.
        """
        take = self._native.take
        while (batch := take(packets, timeout)) is not None:
            yield Batch(batch)

    def reader(
        self,
        packets: int = 65536,
        timeout: float | None = 1.0,
        *,
        limit: int | None = None,
        duration: float | None = None,
        data: bool = False,
        **columns: Any,
    ) -> Stream:
        """A stream of record batches for DuckDB, polars, pandas and pyarrow: as of `batches`, with `Batch.columns`.

        It ends after `limit` packets or `duration` seconds, or with the packets. `data` is off: a program that keeps
        all record batches would keep the pool.
        """
        stream: StreamChoice = {"packets": packets, "timeout": timeout, "limit": limit, "duration": duration}
        return self._native.stream(stream, column_choice(data=data, **columns))

    def pairs(self) -> Generator[tuple[float, bytes], None, None]:
        """Time and bytes of each packet, as dpkt.pcap.Reader gives them."""
        for packet in self:
            yield packet.time, bytes(packet)
