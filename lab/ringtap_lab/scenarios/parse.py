# SPDX-License-Identifier: MIT OR Apache-2.0
"""What each tool says of itself at its end, read into one shape.

Invariants
- A report that cannot be read is an error, never a zero.
- `lost` is the tool's own claim; the caller compares it with what was offered.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass


class ReportError(Exception):
    """A tool's last words are not what they should be."""


@dataclass(frozen=True)
class Report:
    """One tool's own account: packets that reached its user, and packets it says it lost."""

    delivered: int
    lost: int
    #: What the tool says it was offered, if it says so.
    offered: int | None = None
    #: Whether its counters balances, if it keeps one.
    balanced: bool | None = None
    #: Packets that a rule withheld, as its user wished.
    shunted: int = 0


def _numbers(pattern: str, text: str, tool: str) -> tuple[int, ...]:
    found = re.findall(pattern, text, re.MULTILINE)
    if not found:
        raise ReportError(f"{tool}: no final report in its output: {text.strip()[-300:]!r}")
    last = found[-1]
    return tuple(int(one) for one in ([last] if isinstance(last, str) else last))


def last_json(text: str, key: str, tool: str) -> dict:
    """The last line that is a JSON object with this key."""
    for line in reversed(text.splitlines()):
        if line.lstrip().startswith("{"):
            try:
                found = json.loads(line)
            except json.JSONDecodeError:
                continue
            if key in found:
                return found
    raise ReportError(f"{tool}: no JSON line with {key!r} in its output: {text.strip()[-300:]!r}")


def tcpdump(text: str) -> Report:
    """`N packets captured`, `N packets received by filter`, `N packets dropped by kernel`."""
    (captured,) = _numbers(r"^(\d+) packets? captured", text, "tcpdump")
    (dropped,) = _numbers(r"^(\d+) packets? dropped by kernel", text, "tcpdump")
    return Report(delivered=captured, lost=dropped)


def dumpcap(text: str) -> Report:
    """`Packets received/dropped on interface 'x': R/D (pcap:A/dumpcap:B/flushed:C/ps_ifdrop:E)`."""
    pattern = r"on interface '[^']*': (\d+)/(\d+) \(pcap:(\d+)/dumpcap:(\d+)/flushed:(\d+)"
    received, _, in_kernel, inside, flushed = _numbers(pattern, text, "dumpcap")
    return Report(delivered=received, lost=in_kernel + inside + flushed)


def ringtap(text: str) -> Report:
    """The last object of `--json`: the final counters over all lanes."""
    counters = last_json(text, "balanced", "ringtap")
    return Report(
        delivered=counters["delivered"],
        lost=sum(counters["dropped"].values()),
        offered=counters["offered"],
        balanced=counters["balanced"],
        shunted=counters.get("shunted", 0),
    )


def sender(text: str) -> tuple[int, int]:
    """Packets that the device took, and nanoseconds, from the final line of `ringtap send`."""
    final = last_json(text, "sent", "ringtap send")
    if not final["final"] or final["elapsed_ns"] <= 0:
        raise ReportError(f"ringtap send: no final line in its output: {text.strip()[-300:]!r}")
    return final["sent"], final["elapsed_ns"]


def floor(text: str) -> Report:
    """`{"dropped": N}`: what the floor's XDP program threw away is what it was given."""
    dropped = last_json(text, "dropped", "floor")["dropped"]
    return Report(delivered=dropped, lost=0, offered=dropped)


def latency(text: str) -> dict[str, int]:
    """`latency_ns median M p99 P max X`, as ringtap and the libpcap reader say it, from the time
    stamp of the capture; with `since_sent_ns ...`, from that of the sender, `sent_median_ns` too.
    """
    found = re.findall(r"latency_ns median (\d+) p99 (\d+) max (\d+)", text)
    if not found:
        raise ReportError(f"no latency in the output: {text.strip()[-300:]!r}")
    row = dict(zip(("median_ns", "p99_ns", "max_ns"), map(int, found[-1])))
    since_sent = re.findall(r"since_sent_ns median (\d+) p99 \d+ max \d+", text)
    return row | {"sent_median_ns": int(since_sent[-1])} if since_sent else row


def libpcap_reader(text: str) -> Report:
    """`received N dropped D`, from the lab's own libpcap reader."""
    received, dropped = _numbers(r"^received (\d+) dropped (\d+)", text, "libpcap reader")
    return Report(delivered=received, lost=dropped)
