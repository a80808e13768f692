# SPDX-License-Identifier: MIT OR Apache-2.0
"""The Markdown page of a measurement of virtual machines, and its goals, from the JSON alone."""

from __future__ import annotations

from ringtap_lab.formatters.tables import grid

NATIVE, VIRTIO = "host, 1 reader", "1 VM, virtio-net, AF_PACKET"
ONE, TWO = "1 VM, 1 reader", "2 VMs, 4 readers each"
#: A reader that is woken as seldom as that of AF_PACKET.
SELDOM = "woken every 60 ms"

METHOD = """\
Two virtual machines of an unmodified QEMU with 2 processors and 768 MiB each, on the machine's own cores.
`ringtap send` fills a veth pair from core 0. One round; a trial lasts {trial_seconds:g} s; packets that wait at its end
count, so all have the same memory for them: {ring_mib} MiB (*{native}* has the hub's 64 MiB). *Lossless* is the highest
rate at which every reader received every packet. *{virtio}*: the veth is in a bridge with the tap of QEMU, and a C
program reads a TPACKET_V3 ring in the guest. passt and vhost-user-net are not compared: passt ends connections and
passes no monitored packets, and QEMU comes without a back end of vhost-user. Time of the guest is that of QEMU's
threads that are its processors; time of the host is that of hub, `vm attach` and QEMU's other threads.
"""
TCG = """\
**QEMU emulates the processor here** (no KVM): work of the guest is 10 to 30 times slower than on hardware, so only
ratios and counts mean something, and ratios flatter what works little in the guest.
"""


def _rate(result: dict, size: int, name: str) -> float | None:
    return result.get("rates", {}).get(str(size), {}).get(name, {}).get("lossless_pps")


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _cell(result: dict, *path: str) -> float | None:
    for key in path:
        result = result.get(key, {}) if isinstance(result, dict) else {}
    return result if isinstance(result, (int, float)) else None


def goals(result: dict) -> list[dict]:
    """Every goal with its figure and the verdict."""
    found = []

    def goal(text: str, bound: str, number: float, unit: str, figure: float | None) -> None:
        met = figure is not None and (figure >= number if bound == "least" else figure <= number)
        verdict = "not measured" if figure is None else "met" if met else "MISSED"
        found.append({"goal": text, "bound": bound, "number": number, "unit": unit, "figure": figure,
                      "verdict": verdict})  # fmt: skip

    for size in (64, 1500):
        one, two = _rate(result, size, ONE), _rate(result, size, TWO)
        goal(f"{size} bytes: {ONE} against virtio-net", "least", 8, "x",
             _ratio(one, _rate(result, size, VIRTIO)))  # fmt: skip
        goal(f"{size} bytes: {TWO}, packets of both VMs together against {ONE}", "least", 0.9, "x",
             _ratio(two and 2 * two, one))  # fmt: skip
    theirs = _cell(result, "filter", VIRTIO, "guest_ns_per_offered")
    for name, wanted in (
        (f"200kpps, {SELDOM}", f"1 in 1,000 wanted, both {SELDOM}"),
        ("200kpps", "1 in 1,000 wanted, woken at each"),
        ("none wanted", "none wanted"),
    ):
        ours = _cell(result, "filter", f"{ONE}, {name}", "guest_ns_per_offered")
        goal(f"a guest's processor time per offered packet, {wanted}, against virtio-net", "most", 0.01,
             "x", _ratio(ours, theirs))  # fmt: skip
    goal("round trip to a sleeping reader against virtio-net, median", "most", 1, "x",
         _ratio(_cell(result, "latency", ONE, "median_ns"),
                _cell(result, "latency", VIRTIO, "median_ns")))  # fmt: skip
    for key, text in (("guest", "the guest's own samples"), ("QEMU", "QEMU, the guest included")):
        alone, ours = (_cell(result, "idle", name, key) for name in ("without Ringtap", ONE))
        goal(f"idle: processor time above that without Ringtap, {text}", "most", 0, "ticks",
             None if alone is None or ours is None else max(0, ours - alone))  # fmt: skip
    for name in ("hub", "vm attach"):
        goal(f"idle: processor time of {name}", "most", 0, "ticks", _cell(result, "idle", ONE, name))
    return found


def goal_table(result: dict) -> str:
    """The goals as a table."""
    rows = []
    for one in result["goals"]:
        figure = "-" if one["figure"] is None else f"{one['figure']:.3g} {one['unit']}"
        bound = f"at {one['bound']} {one['number']:g} {one['unit']}"
        rows.append([one["goal"], bound, figure, one["verdict"]])
    return grid([["goal", "bound", "measured", "verdict"], *rows], left=2) + "\n"


def markdown(result: dict) -> str:
    """The whole page."""
    about = result["machine"]
    parts = [
        "# Virtual machines\n",
        f"{result['date']}, revision {result['revision']}; {about['cpu']}, {about['cores']} cores, Linux"
        f" {about['kernel']}, {about['system']}. Made by `{result['command']}`.\n",
        TCG if result["acceleration"].startswith("tcg") else "QEMU uses KVM.\n",
        METHOD.format(native=NATIVE, virtio=VIRTIO, **result["settings"]),
        "## Goals\n",
        goal_table(result),
        "## Lossless rates\n",
        _rates(result.get("rates", {})),
        "## One packet in 1,000 is wanted\n",
        _plain(result.get("filter", {})),
        "## A line of 1 Gbit/s\n",
        _line(result.get("line", {})),
        "## Round trip to a sleeping libpcap program\n",
        _plain(result.get("latency", {})),
        "## Idle: ticks of 10 ms in 10 s\n",
        _plain(result.get("idle", {})),
        "## Hot-plug under traffic, seconds (median, least, most)\n",
        _plain(result.get("plug", {}).get("summary", {})),
        "## When\n",
        "".join(f"- {name}: {about}\n" for name, about in result["measured"].items()),
        "## Faults\n",
        "".join(f"- {one}\n" for one in result["problems"]) or "None.\n",
    ]
    return "\n".join(parts)


def _rates(rates: dict) -> str:
    rows = []
    for size, ways in rates.items():
        for name, row in ways.items():
            trial = row.get("trial", {})
            host, worked = trial.get("host_ns_per_packet"), trial.get("guest_ns")
            rows.append([
                size, name, f"{row['lossless_pps']:,.0f}" + " *" * row.get("limited", False),
                f"{row['max_pps']:,.0f}",
                "-" if not host else f"{host:,.0f}",
                "-" if worked is None else f"{worked / trial['offered']:,.0f}",
            ])  # fmt: skip
    head = ["bytes", "reader", "lossless, packets/s", "most that arrived", "host, ns/packet", "guest, ns/packet"]
    return grid([head, *rows], left=2) + "\n\n`*`: the sender's limit.\n"


def _line(rows: dict) -> str:
    """Packets of a line by frame size; one column for each way to read them."""
    ways = (VIRTIO, "1 VM", "2 VMs")
    cases = list(dict.fromkeys((row["bytes"], row["wanted"]) for row in rows.values()))
    lines = []
    for size, wanted in cases:
        found = [rows.get(f"{size} B, {way}, {wanted}") for way in ways]
        offered = next(row["offered_pps"] for row in found if row)
        shares = [row["captured_share"] * 100 if row else None for row in found]
        cells = ["-" if one is None else f"{one:.2f}" for one in shares]
        for row in found:
            used = row and (row["host_cpu_percent"], row["guest_cpu_percent"])
            cells.append("{:.0f} + {:.0f}".format(*used) if used else "-")
        lines.append([str(size), wanted, f"{offered:,.0f}", *cells])
    head = ["bytes", "wanted", "offered, packets/s"]
    head += [f"{way}: captured, %" for way in ways] + [f"{way}: CPU, %" for way in ways]
    note = "\n*captured*: of the wanted packets, by the reader that got least. *CPU*: of one core, host + guest.\n"
    return grid([head, *lines], left=2) + "\n" + note


def _plain(rows: dict) -> str:
    """A table of dictionaries with the same keys."""
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    cell = lambda value: "-" if value is None else f"{value:,.2f}".rstrip("0").rstrip(".")  # noqa: E731
    lines = [[name, *(cell(row.get(key)) for key in keys)] for name, row in rows.items()]
    return grid([["", *(key.replace("_", " ") for key in keys)], *lines]) + "\n"
