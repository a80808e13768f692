# SPDX-License-Identifier: MIT OR Apache-2.0
"""The Markdown page of a result, and the part of it that the README shows.

Invariants
- Both are made from the JSON alone: a page can be made again from any stored result.
"""

from __future__ import annotations

from pathlib import Path

from ringtap_lab.scenarios import python_bench, questions, tables
from ringtap_lab.scenarios.contenders import CROWD_RING_MIB

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

METHOD = """\
One run measures all, contenders in turn, round by round; figures are `median (least to most)`
over the rounds. Everything happens in a private network namespace with a veth pair. The sender
(`ringtap send`: XDP live frames redirected into the veth) and the kernel's receive side share
core {sender_cpu}, the readers have core {reader_cpu}. Sizes include the 4 bytes of the frame check
sequence, which no buffer holds. Every contender has {ring_mib} MiB for packets that wait.

- **offered**: what the veth took, by the sender's counter in the kernel; the captured device's
  counter must agree.
- **delivered**: what the contender itself reports at its end, after it was left to read all that
  waited. Packets that waited when the sender stopped count as delivered, which flatters a
  program that reads slower than it captures.
- **ns above the floor**: 1/delivered rate - 1/rate of XDP_DROP in the same round.
- **many readers**: all share core {reader_cpu}, and so does the hub. Each touches the headers of
  every packet; readers of the same packets must have the same sum over them. A rate is lossless
  if no reader lost a packet while it was sent; the highest one is searched in trials. `*`: the
  sender, which shares its core with the capture, had no more. AF_PACKET readers are C programs
  that read a TPACKET_V3 ring of {crowd_ring_mib} MiB each in place; the hub has one pool of
  {ring_mib} MiB for all.
- A measurement is at fault, and listed below, if sender, device and contender do not account for
  the same packets, if counters does not balance, if an exit code is not 0, or if anything of a
  contender stays behind.
"""


def machine_line(result: dict) -> str:
    """Where, when and with what, in one sentence."""
    machine, tools = result["machine"], result["tools"]
    peers = ", ".join(f"{name} {tools[name]}" for name in ("tcpdump", "dumpcap", "netsniff-ng"))
    virtual = " (virtual)" if machine["virtual"] else ""
    return (
        f"{result['date']}, revision {result['revision']}; {machine['cpu']}, {machine['cores']}"
        f" cores{virtual}, Linux {machine['kernel']}, {machine['system']}; {peers}."
    )


SECTIONS = [
    ("capture", "Capture at full speed", tables.capture),
    ("pool", "The pool alone: a writer on one core, a reader on the other", tables.pool),
    ("sim", "A simulated NIC at full speed: capture on one core, a reader on the other",
     tables.simulated),
    ("record", "Record 1500-byte packets to a tmpfs", tables.record),
    ("af-xdp", "64-byte packets through AF_XDP sockets in copy mode", tables.record),
    ("pacing", "The sender's rate against what it was asked for", tables.pacing),
    ("idle", "No traffic", tables.idle),
    ("low-rate", "1,000 packets a second: from the kernel's time stamp to the reader",
     tables.low_rate),
    ("latency", "64-byte packets at high rates: from each one's time stamp to the reader",
     tables.latency),
    ("distance", "The rate of the capture, and how often its reader looks", tables.distance),
    ("readers", "Many readers, each a process of its own: 64-byte packets", tables.crowds),
    ("filters", "Many readers with different filters, of which one matches", tables.filters),
    ("shunting", "Rules for flows: what they cost, and what they save", tables.shunting),
    ("forward", "64-byte packets forwarded from one veth pair to another", tables.forward),
    ("placement", "A:A, A:B and the scheduler's choice, after Braun et al.", tables.placement),
    ("probe-flows", "Flow records: 64-byte packets of 65,536 flows live, and files", tables.flows),
    ("probe-kernel", "Flow metering in the kernel, and the memory of flows", tables.meter),
    ("hub-cpu", "The hub's own processor time", tables.hub_cpu),
    ("wake", "1,000 packets a second: from each one's time stamp to a sleeping reader of another"
     " process", tables.low_rate),
    ("programs", "Real libpcap programs, over libpcap and over Ringtap", tables.programs),
    ("opening", "What a libpcap program waits for before its first packet, and at its end",
     tables.opening),
    ("python", "Packets in Python: 64-byte packets live without loss, and from a file", python_bench.table),
    ("parquet", "A capture file as columns", questions.table("mb_per_s", "MB/s of pcap")),
    ("index", "Indexes of capture files", questions.index_table),
    ("find", "One flow in recordings on disk, with cold caches", questions.table("seconds", "seconds", 4)),
    ("record-index", "Record the mix to a tmpfs, with and without an index", tables.record),
]  # fmt: skip


def markdown(result: dict) -> str:
    """The whole page."""
    parts = ["# Benchmark\n", machine_line(result) + "\n", f"Made by `{result['command']}`.\n"]
    parts += [f"> **Note**: {note}\n" for note in result["notes"]]
    parts += ["## Goals\n", tables.goals(result["goals"])]
    for key, title, render in SECTIONS:
        if key in result:
            parts += [f"## {title}\n", render(result[key])]
    parts += ["## Method\n", METHOD.format(**{"crowd_ring_mib": CROWD_RING_MIB, **result["layout"]})]
    parts += ["## Faults\n", _faults(result["problems"])]
    parts += ["## Command lines\n", _commands(result)]
    return "\n".join(parts)


def _faults(problems: list[str]) -> str:
    if not problems:
        return "None: every measurement's accounts agree.\n"
    return "".join(f"- {one}\n" for one in problems)


def _commands(result: dict) -> str:
    lines = [f"sender: {result['sender_command']}"]
    for key, _, _ in SECTIONS:
        commands = {name: entry["command"] for name, entry in _entries(result.get(key, {}))}
        lines += [f"{key}, {name}: {command}" for name, command in commands.items()]
    return "```\n" + "\n".join(lines) + "\n```\n"


def _entries(found: dict) -> list[tuple[str, dict]]:
    """All contenders of a scenario, whatever it groups them by."""
    entries = []
    for name, value in found.items():
        if isinstance(value, dict):
            entries += [(name, value)] if "command" in value else _entries(value)
    return entries


def readme_part(result: dict) -> str:
    """The README's text between the markers: one table, and where it was measured."""
    table = tables.four_numbers_of_readers(result["readers"])
    return f"{table}\n{machine_line(result)}\n"


def refresh(readme: Path, part: str, markers: tuple[str, str] = (BEGIN, END)) -> None:
    """Puts `part` between two markers of the README.

    Raises ValueError if the README has not exactly one of each marker, in this order.
    """
    text = readme.read_text()
    begin, end = markers
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended or begin in rest or end in after:
        raise ValueError(f"{readme}: wants one {begin} and then one {end}")
    readme.write_text(f"{before}{begin}\n{part}\n{end}{after}")
