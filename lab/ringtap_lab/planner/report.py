# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plans of several rates as one Markdown page."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from ringtap_lab.formatters.tables import grid
from ringtap_lab.planner.costs import Costs
from ringtap_lab.planner.model import CHANGE, Ask, Plan
from ringtap_lab.planner.quantities import short

#: Lines of the table: heading, and the figure.
LINES: tuple[tuple[str, Callable[[Plan], str]], ...] = (
    ("packets", lambda plan: short(plan.packets_per_s, "pps")),
    ("receive queues, each on a core", lambda plan: str(plan.receive_queues)),
    ("cores of the hub", lambda plan: str(plan.cores["hub"])),
    ("cores of the readers", lambda plan: str(plan.cores["readers"])),
    ("members that share a reader's work", lambda plan: str(plan.members_per_reader)),
    ("cores of the probe", lambda plan: str(plan.cores["probe"])),
    ("cores of the recorder", lambda plan: str(plan.cores["recorder"])),
    ("**cores**", lambda plan: f"**{sum(plan.cores.values())}**"),
    ("chunks per receive queue", lambda plan: f"{plan.chunks_per_lane:,}"),
    ("of these, guaranteed to each reader", lambda plan: f"{plan.guaranteed_chunks:,}"),
    ("**pool**", lambda plan: f"**{short(plan.pool_bytes, 'B')}**"),
    ("memory, with the probe's flows", lambda plan: short(plan.memory_bytes, "B")),
    ("disk", lambda plan: short(plan.disk_bytes_per_s, "B/s")),
    ("disks for that rate", lambda plan: str(plan.disks)),
    ("**recording**", lambda plan: f"**{short(plan.recording_bytes, 'B')}**"),
    ("index", lambda plan: short(plan.index_bytes, "B")),
)


def page(words: list[str], ask: Ask, costs: Costs, plans: list[Plan]) -> str:
    """The plans, what carries them, and what they rest on."""
    rates = [plan.rate for plan in plans]
    recording = f"recordings stay for {ask.keep_s / 86_400:g} days" if ask.keep_s else "nothing is recorded"
    parts = [
        "# What a link needs",
        "Made by:\n\n```\n" + shlex.join(["ringtap-lab", "plan", *words]) + "\n```",
        f"{ask.readers} readers of all packets{f', a probe with {ask.flows:,.0f} flows' if ask.flows else ''}, and "
        f"{recording}. Frames: `{ask.mix.text}`, {ask.mix.mean():.0f} bytes in the mean. Each of the {ask.consumers} "
        f"may pause for {ask.pause_s:g} s, whatever the others do (`guaranteed_readers = {ask.consumers}`). Cores have "
        f"{ask.headroom:g} times the capacity that the measured costs ask for.",
        grid([["", *rates], *([heading, *map(figure, plans)] for heading, figure in LINES)]),
        f"## What carries the answer\n\nThe inputs whose change by {CHANGE - 1:.0%} changes a result most, with that "
        "change. What was asked for (rate, readers, flows, time) is not among them.",
        _bullets(plans, _carried),
        "## What is extrapolated",
        _bullets(plans, lambda plan: plan.extrapolated),
        "Not in the plan: the bandwidth of memory and PCIe, the receive ring of the card, and uneven queues.",
        "## Costs",
        grid([["", "cost", "source"], *([one.what, f"{one.value:.3g} {one.unit}", one.source]
                                        for one in costs.each.values())]),
        f"Capture per packet and byte is a line through the measured sizes; it misses none by more than "
        f"{costs.misses:.0%}.",
        "## Check\n\nOne receive queue in virtual time, while its reader pauses: nothing is lost. With a tenth of the "
        "chunks, or of the capture's rate, packets are.\n\n```\n"
        + "\n".join(shlex.join(["ringtap", *plan.simulation]) for plan in plans) + "\n```",
    ]  # fmt: skip
    return "\n\n".join(parts)


def _carried(plan: Plan) -> list[str]:
    return [f"{result}: " + ", ".join(f"{name} {effect:g} %" for name, effect in each.items())
            for result, each in plan.carried_by.items()]  # fmt: skip


def _bullets(plans: list[Plan], lines: Callable[[Plan], list[str]]) -> str:
    """Each line once, with the rates that it holds for unless it holds for all."""
    found: dict[str, list[str]] = {}
    for plan in plans:
        for one in lines(plan):
            found.setdefault(one, []).append(plan.rate)
    return "\n".join(f"- {one}" if len(rates) == len(plans) else f"- {', '.join(rates)}: {one}"
                     for one, rates in found.items())  # fmt: skip
