# SPDX-License-Identifier: MIT OR Apache-2.0
"""Quantities in arguments, such as `100Gbps`, `10M` and `7d`, and in tables."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

TENS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
#: Frames with their check sequence: the least and the most that a plan takes.
LEAST, MOST = 64, 9_216
#: The mix of `ringtap send --imix`: size and parts.
IMIX = ((64, 7), (570, 4), (1518, 1))


class PlanError(Exception):
    """A plan cannot be made of this; the message says why."""


def number(what: str, text: str, units: dict[str, float], least: float, most: float) -> float:
    """A number with one of the units, between two limits."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z/]*)", text)
    if not found or found[2] not in units:
        known = ", ".join(repr(unit) if unit else "none" for unit in units)
        raise PlanError(f"{what}: {text!r} is not a number with a unit ({known})")
    value = float(found[1]) * units[found[2]]
    if not least <= value <= most:
        raise PlanError(f"{what}: {text!r} is not between {least:g} and {most:g}")
    return value


@dataclass(frozen=True)
class Rate:
    """What arrives: bits per second of the link with preambles and gaps, or packets per second."""

    text: str
    value: float
    packets: bool

    @classmethod
    def read(cls, text: str) -> Rate:
        """Reads `100Gbps` or `10Mpps`."""
        bits = {f"{prefix}bps": factor for prefix, factor in TENS.items()}
        packets = {f"{prefix}pps": factor for prefix, factor in TENS.items()}
        # 8 bits per second are less than a packet in a minute: a mistake.
        value = number("--rate", text, bits | packets, 1e3, 1e14)
        return cls(text, value, text.endswith("pps"))

    def pps(self, frame: float) -> float:
        """Packets per second of frames with their check sequence; each has 20 bytes of preamble and gap."""
        return self.value if self.packets else self.value / (8 * (frame + 20))


@dataclass(frozen=True)
class Mix:
    """Frame sizes, each with its check sequence, and their parts."""

    text: str
    parts: tuple[tuple[int, float], ...]

    @classmethod
    def read(cls, text: str) -> Mix:
        """Reads `imix`, `SIZE` or `SIZE:PARTS,SIZE:PARTS`."""
        if text == "imix":
            return cls(text, IMIX)
        parts = []
        for one in text.split(","):
            size, _, part = one.partition(":")
            weight = number("--mix", part or "1", {"": 1.0}, 1e-6, 1e6)
            bytes_ = number("--mix", size, {"": 1.0}, LEAST, MOST)
            if not bytes_.is_integer():
                raise PlanError(f"--mix: {size!r} is not a whole number of bytes")
            parts.append((int(bytes_), weight))
        return cls(text, tuple(parts))

    def mean(self) -> float:
        """The mean frame."""
        return self._mean([size for size, _ in self.parts])

    def captured(self, snap: int) -> float:
        """Bytes that are kept of the mean packet."""
        return self._mean([kept(size, snap) for size, _ in self.parts])

    def in_pool(self, snap: int) -> float:
        """Bytes that the mean packet takes in a chunk."""
        return self._mean([slot(kept(size, snap)) for size, _ in self.parts])

    def largest(self) -> int:
        """The largest frame."""
        return max(size for size, _ in self.parts)

    def least(self) -> int:
        """The least frame."""
        return min(size for size, _ in self.parts)

    def _mean(self, values: list[int]) -> float:
        weights = [weight for _, weight in self.parts]
        return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def kept(size: int, snap: int) -> int:
    """Bytes that are captured of a frame: no check sequence, and not more than `snap` unless that is 0."""
    return min(size - 4, snap or MOST)


def slot(captured: int) -> int:
    """Bytes of a captured packet in a chunk (docs/internals/format.md)."""
    return math.ceil(captured / 8) * 8 + 32


def short(value: float, unit: str) -> str:
    """A quantity with a prefix of thousands and three digits."""
    digits = f"{value:.3g}"
    step = next((name for name in reversed(TENS) if name and float(digits) >= TENS[name]), "")
    return f"{float(digits) / TENS[step]:g} {step}{unit}".strip()
