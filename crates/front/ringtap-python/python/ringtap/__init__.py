# SPDX-License-Identifier: MIT OR Apache-2.0
"""Packets of a shared capture: in place, as Arrow tables and NumPy arrays.

>>> import ringtap
>>> with ringtap.open("sim:max?burst=1000") as capture:
...     sum(packet.wire_length for packet in capture)
60000
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

from . import _native
from ._batch import SLOT, Batch, Flag
from ._capture import Capture, FlowEvents
from ._flows import Flows
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
    RuleError,
    SendError,
    SourceError,
)
from ._search import IncompleteWarning, Origin, Search, find

__all__ = [
    "SLOT",
    "Batch",
    "Capture",
    "ClosedError",
    "DeviceError",
    "Error",
    "FilterError",
    "Flag",
    "FlowEvents",
    "Flows",
    "ForkError",
    "HubError",
    "HubLeftError",
    "IncompleteWarning",
    "InterfaceRemovedError",
    "OpenError",
    "Origin",
    "Packet",
    "RecordError",
    "RuleError",
    "Search",
    "SendError",
    "SourceError",
    "find",
    "flows",
    "inject",
    "open",
    "status",
    "why",
]

#: Packets that `inject` takes from its argument at a time.
_INJECTED = 256


def open(device: str | os.PathLike[str], **options: Any) -> Capture:
    """Opens a device (`eth0`, `hub:ids`, `host:ids`, `sim:1Mpps`) or a capture file (a path, or `pcap:FILE`).

    Options: filter, snap_length, name, credit (chunks), in_order (seconds), private, socket,
    watermark (packets, seconds), cutoff (of all flows: `20 packets`, `16KiB`), marks (a group: packets that
    flow rules give to it, too, have `Flag.MARKED`).
    """
    return Capture(_native.open(_device(device), **options))


def _device(device: str | os.PathLike[str]) -> str:
    text = os.fspath(device)
    if not isinstance(text, str):
        raise TypeError("expected a device or a path as text, not as bytes")
    name = text.removesuffix(".gz").removesuffix(".zst")
    is_file = name.endswith((".pcap", ".pcapng", ".cap")) and not text.startswith("pcap:")
    return f"pcap:{text}" if is_file or isinstance(device, os.PathLike) else text


def flows(
    device: str | os.PathLike[str],
    *,
    filter: str = "",
    idle: float = 15.0,
    active: float = 60.0,
    max_flows: int | None = None,
    workers: int | None = None,
    socket: str | None = None,
) -> Flows:
    """Flows of a device or a capture file, with the names of the probe's Parquet files.

    A flow ends after `idle` seconds without a packet; one that lasts longer than `active` seconds is given in parts.
    """
    native = _native.flows(
        _device(device), filter=filter, idle=idle, active=active, max_flows=max_flows, workers=workers, socket=socket
    )
    return Flows(native)


def inject(interface: str, packets: Any, *, qdisc_bypass: bool = False) -> dict[str, Any]:
    """Sends packets out of an interface: a Packet, bytes, a packet of scapy, or many of them.

    Waits for room. Gives what the device took (sent, bytes) and what it did not (refused, with the last reason).
    `qdisc_bypass`: past the queueing discipline, straight to the driver.
    """
    injector = _native.Injector(interface, qdisc_bypass)
    is_one = isinstance(packets, (bytes, bytearray, memoryview)) or hasattr(packets, "__bytes__")
    waiting: Iterator[Any] = iter([packets] if is_one else packets)
    while part := [_bytes(packet) for packet in islice(waiting, _INJECTED)]:
        injector.send(part)
    counters, refusal = injector.counters()
    counted = json.loads(counters)
    return {name: counted[name] for name in ("sent", "refused", "bytes")} | {"refusal": refusal}


def _bytes(packet: Any) -> bytes:
    # Not bytes(packet): of a number, that is as many zeros.
    return packet.__bytes__() if hasattr(packet, "__bytes__") else bytes(memoryview(packet))


def why(interval: float = 1.0, socket: str | None = None) -> list[dict[str, Any]]:
    """Where a hub lost packets, as `ringtap why` finds it: text, kind, lost_packets, advice."""
    return json.loads(_native.explain_hub(interval, socket))


def status(socket: str | None = None) -> dict[str, Any]:
    """All counters of a hub, as `ringtap status` prints them."""
    return json.loads(_native.hub_status(socket))
