# SPDX-License-Identifier: MIT OR Apache-2.0
"""Accounts of a trial: what its readers say, beside what was sent, received, and sent on.

Invariants
- Accounts that contradict each other are in `problems`, in words.
"""

from __future__ import annotations

from typing import Any

from ringtap_lab.manager import filters
from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.contender import Contender
from ringtap_lab.manager.counts import contradictions, figure

#: Packets that a bridge of the kernel may add.
OWN_PACKETS = 16
#: Bytes of the frame check sequence, which is in no buffer.
FCS = 4
#: Bytes of an Ethernet header.
ETHERNET = 14


def account(
    contender: Contender, case: Case, outputs: list[str], sent: dict[str, int], came: int, out: int | None = None,
    nic_dropped: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """What all readers say, beside what was sent, what the device received, and dropped of it, and what came out of the
    sensor again."""
    offered = sent["sent"]
    each = [contender.counts.read(text) for text in outputs]
    problems, missed, got = ["nothing was sent"] * (not offered and case.rate != "none"), [], []
    if out is not None:
        # The kernel's bridge sends a few packets of its own when it begins, and tells no counts.
        out = offered if not contender.counts.terms and 0 < out - offered <= OWN_PACKETS else out
        problems += [f"it says that it forwarded {one['delivered']} packets, but {out} came out"
                     for one in each if one.get("delivered", out) != out]  # fmt: skip
        each = [{**one, "delivered": out} for one in each or [{}]]
    wanted = filters.of(case.filters, len(each))
    for number, (counts, one) in enumerate(zip(each, wanted, strict=True), 1):
        reader = f"reader {number} of {len(each)}: " if len(each) > 1 else ""
        lost, shunted = counts.get("lost", 0), counts.get("shunted", 0)
        share = one.share(offered, counts["delivered"] + shunted + lost)
        # Of what it lost before its filter, a reader that wants nothing lost nothing.
        told = counts if one.part else {**counts, "lost": 0}
        arrived = came if number == 1 else None
        problems += [reader + it for it in contradictions(told, offered, arrived, share, nic_dropped)]
        missed.append(share - shunted - counts["delivered"])
        # Its part of what it asked for, of all packets: a count times its turns would be wrong by the last turn.
        got += [offered * counts["delivered"] // share] if share else []
    figures = [{key: figure(text, one) for key, one in contender.figures.items()} for text in outputs] or [{}]
    if case.filters != "parts":
        problems += same_headers(each, figures)
    problems += wrong_bytes(each, figures, case.size - FCS)
    problems += wrong_numbers(each, figures, sent.get("refused", 0))
    problems += wrong_ip_bytes(each, case.size - FCS - ETHERNET)
    shunted = max(counts.get("shunted", 0) for counts in each)
    kept = offered - shunted
    delivered = min(got, default=offered)
    return {
        # Further counts of a reader, such as what it captured without analysing it.
        **each[0],
        "offered": offered,
        "received": came,
        "delivered": delivered,
        "shunted": shunted,
        "lost": sum(missed),
        "loss_percent": 100.0 * (kept - delivered) / kept if kept else 0.0,
        "elapsed_ns": sent["elapsed_ns"],
        "offered_pps": offered * 1e9 / sent["elapsed_ns"],
        "delivered_pps": delivered * 1e9 / sent["elapsed_ns"],
        "readers": each,
        **{key: value for key, value in figures[0].items() if key not in ("header_sum", "bytes")},
        **({"nic_dropped": nic_dropped} if nic_dropped else {}),
        "problems": problems,
    }


def same_headers(each: list[dict[str, int]], figures: list[dict[str, float]]) -> list[str]:
    """Readers that got the same packets must have read the same headers."""
    sums: dict[int, set[float]] = {}
    for counts, one in zip(each, figures, strict=True):
        if "header_sum" in one:
            sums.setdefault(counts["delivered"], set()).add(one["header_sum"])
    return [
        f"headers of the same {delivered} packets have the sums {sorted(different)}"
        for delivered, different in sums.items()
        if len(different) > 1 or (delivered > 0 and 0 in different)
    ]


def wrong_ip_bytes(each: list[dict[str, int]], length: int) -> list[str]:
    """Records of flows must have the bytes of their packets from IP on."""
    return [
        f"its records have {counts['ip_bytes']} bytes of {counts['delivered']} packets of {length}"
        for counts in each
        if counts.get("ip_bytes", counts["delivered"] * length) != counts["delivered"] * length
    ]


def wrong_numbers(each: list[dict[str, int]], figures: list[dict[str, float]], refused: int) -> list[str]:
    """Numbers in the packets must agree with the counts; `refused`: numbered packets that the device did not take."""
    return [
        f"{one['missing']} packets' numbers are missing, but it lost {counts.get('lost', 0)}; {refused} were not sent"
        for counts, one in zip(each, figures, strict=True)
        if one.get("missing", 0) > counts.get("lost", 0) + refused
    ]


def wrong_bytes(each: list[dict[str, int]], figures: list[dict[str, float]], length: int) -> list[str]:
    """A reader that adds the bytes of its packets must have read all of each."""
    return [
        f"it read {one['bytes']} bytes of {counts['delivered']} packets of {length}"
        for counts, one in zip(each, figures, strict=True)
        if one.get("bytes", counts["delivered"] * length) != counts["delivered"] * length
    ]
