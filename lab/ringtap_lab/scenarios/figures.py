# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arithmetic of scenarios: rates and losses."""

from __future__ import annotations


def rate_mpps(packets: int, elapsed_ns: int) -> float:
    """Millions of packets a second."""
    return packets * 1000.0 / elapsed_ns


def loss_percent(offered: int, delivered: int) -> float:
    """Share of the offered packets that did not arrive."""
    return 100.0 * (offered - delivered) / offered if offered else 0.0
