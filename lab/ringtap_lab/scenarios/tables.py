# SPDX-License-Identifier: MIT OR Apache-2.0
"""Markdown tables of a result, each from the JSON alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

ABSENT = "-"


def table(head: Iterable[str], rows: Iterable[Iterable[str]], left: int = 1) -> str:
    """A Markdown table, its columns aligned; all but the first `left` are numbers."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = []
    for number, line in enumerate(lines):
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ]
        text.append("| " + " | ".join(cells) + " |")
        if number == 0:
            rules = [
                "-" * width if column < left else "-" * (width - 1) + ":"
                for column, width in enumerate(widths)
            ]
            text.append("| " + " | ".join(rules) + " |")
    return "\n".join(text) + "\n"


def figure(spread: dict | None, digits: int, scale: float = 1.0) -> str:
    """`median (min-max)`."""
    if not spread:
        return ABSENT
    low, mid, high = (f"{spread[key] * scale:.{digits}f}" for key in ("min", "median", "max"))
    return f"{mid} ({low} to {high})"


def _loss(summary: dict) -> str:
    loss = summary.get("loss_percent")
    if not loss:
        return ABSENT
    return "0" if loss["max"] == 0 else figure(loss, 2)


def _absent(entry: dict) -> str | None:
    return "not installed" if entry.get("missing") else None


def capture(sizes: dict) -> str:
    """One table a frame size."""
    head = ["", "offered Mpps", "delivered Mpps", "lost %", "ns above the floor"]
    text = []
    for size, found in sizes.items():
        rows = []
        for name, entry in found.items():
            absent, summary = _absent(entry), entry["summary"]
            if absent:
                rows.append([name, absent, ABSENT, ABSENT, ABSENT])
                continue
            rows.append([
                name,
                figure(summary.get("offered_mpps"), 3),
                figure(summary.get("delivered_mpps"), 3),
                _loss(summary),
                figure(summary.get("ns_above_floor"), 0),
            ])  # fmt: skip
        text.append(f"**{size} bytes**\n\n{table(head, rows)}")
    return "\n".join(text)


def pool(found: dict) -> str:
    """The pool alone."""
    rows = [
        [f"{int(chunks):,} chunks", figure(entry["summary"].get("mpps"), 0)]
        for chunks, entry in found.items()
    ]
    return table(["", "Mpps"], rows)


def forward(found: dict) -> str:
    """Packets that each program forwarded."""
    rows = [
        [
            f"{name} ({entry['note']})",
            figure(entry["summary"].get("offered_mpps"), 3),
            figure(entry["summary"].get("forwarded_mpps"), 3),
            figure(entry["summary"].get("loss_percent"), 2),
        ]
        for name, entry in found.items()
    ]
    return table(["", "offered Mpps", "forwarded Mpps", "lost %"], rows)


def simulated(found: dict) -> str:
    """The simulated NIC."""
    rows = [[name, figure(entry["summary"].get("mpps"), 0)] for name, entry in found.items()]
    return table(["pool (packets, chunks)", "Mpps"], rows)
def placement(found: dict) -> str:
    """Reading speed per choice of cores."""
    rows = []
    for rate, entry in found.items():
        for name, way in entry["ways"].items():
            summary = way["summary"]
            rows.append([
                rate,
                f"**{name}**" if name == entry["choice"] else name,
                figure(summary.get("delivered_mpps"), 3),
                figure(summary.get("loss_percent"), 2),
                figure(summary.get("reader_ns"), 0),
                figure(summary.get("median_us"), 1),
            ])  # fmt: skip
    head = ["sent", "reader (choose bold)", "delivered Mpps", "lost %", "its ns a packet",
            "median latency us"]  # fmt: skip
    return table(head, rows, left=2)


def pacing(found: dict) -> str:
    """How far the sender was off."""
    rows = []
    for rate, entry in found.items():
        summary = entry["summary"]
        rows.append([
            rate,
            figure(summary.get("pps"), 0),
            figure(summary.get("deviation_percent"), 3),
        ])  # fmt: skip
    return table(["asked for", "sent a second", "% off"], rows)


def record(found: dict) -> str:
    """Highest lossless rates."""
    rows = []
    for name, entry in found["contenders"].items():
        summary = entry["summary"].get("lossless_pps")
        absent = _absent(entry)
        limited = any(row["limited"] for row in entry["rounds"])
        gbps = figure(summary, 2, found["size"] * 8 / 1e9)
        rate = absent or figure(summary, 3, 1e-6)
        rows.append([name, rate, gbps, "yes" if limited else "no"])
    return table(["", "Mpps without loss", "Gbit/s", "sender's limit"], rows)


def idle(found: dict) -> str:
    """Processor time without traffic."""
    rows = []
    for name, entry in found["contenders"].items():
        row = entry["result"]
        absent = _absent(entry)
        ticks = absent or (str(row["cpu_ticks"]) if row else ABSENT)
        rows.append([name, ticks, f"{row['cpu_ns'] / 1e6:.2f}" if row else ABSENT])
    head = ["", f"ticks of {found['tick_ms']} ms in {found['seconds']:g} s", "ms by the scheduler"]
    return table(head, rows)


def opening(found: dict) -> str:
    """Time of each step of an open."""
    heads = {"open_ns": "open", "filter_ns": "filter", "change_ns": "change of filter",
             "close_ns": "close", "all_ns": "open, filter, close"}  # fmt: skip
    return _times(found, {key: f"{head} ms" for key, head in heads.items()}, 1e-6)


def low_rate(found: dict) -> str:
    """Time from capture, and from sending, to the reader."""
    heads = {"median_ns": "median us", "p99_ns": "p99 us", "max_ns": "longest us",
             "sent_median_ns": "median us from sending"}  # fmt: skip
    return _times(found, heads, 1e-3)


def _times(found: dict, heads: dict[str, str], scale: float) -> str:
    """The spread of these times of each contender; `scale` makes their unit of nanoseconds."""
    rows = []
    for name, entry in found["contenders"].items():
        rows.append([name, *(figure(entry["summary"].get(key), 1, scale) for key in heads)])
    return table(["", *heads.values()], rows)


def latency(found: dict) -> str:
    """Time from capture to the reader, by rate."""
    keys, rows = ("median_ns", "p99_ns", "max_ns"), []
    for name, entry in found["contenders"].items():
        summary = entry["summary"]
        cells = [figure(summary.get(key), 1, 1e-3) for key in keys]
        rows.append([name, *cells, figure(summary.get("lost"), 0)])
    return table(["", "median us", "p99 us", "longest us", "lost"], rows)


def distance(found: dict) -> str:
    """Rates with readers that look often and rarely."""
    rows = [
        [
            name,
            figure(entry["summary"].get("delivered_mpps"), 3),
            figure(entry["summary"].get("lost"), 0),
        ]
        for name, entry in found["contenders"].items()
    ]
    return table(["", "delivered Mpps", "lost"], rows)


def crowds(found: dict) -> str:
    """Highest lossless rates in Mpps by number of readers; `*` where the sender had no more."""
    kinds = found["contenders"]
    numbers = sorted({int(count) for entry in kinds.values() for count in entry["counts"]})
    rows = []
    for name, entry in kinds.items():
        absent = _absent(entry)
        cells = [_crowd_cell(entry["counts"].get(str(number))) for number in numbers]
        rows.append([name, *([absent] * len(cells) if absent else cells)])
    heads = [f"{number} reader{'s' if number > 1 else ''}" for number in numbers]
    return table(["Mpps without loss", *heads], rows)


def _crowd_cell(
    entry: dict | None, show: Callable[[dict, int, float], str] = figure
) -> str:
    if not entry or not entry["rounds"]:
        return ABSENT
    limited = any(row["limited"] for row in entry["rounds"])
    return show(entry["summary"]["lossless_pps"], 2, 1e-6) + (" *" if limited else "")


def four_numbers_of_readers(found: dict) -> str:
    """Median lossless rates in Mpps, for the README; `*` where the sender had no more."""
    kinds = found["contenders"]
    rows = [
        [f"{count} reader{'s' if count > 1 else ''}"]
        + [_crowd_cell(entry["counts"].get(str(count)), _median) for entry in kinds.values()]
        for count in (1, 4, 8, 16)
    ]
    return table(["Mpps without loss", *kinds], rows)


def _median(summary: dict, digits: int, scale: float) -> str:
    return f"{summary['median'] * scale:.{digits}f}"


def filters(found: dict) -> str:
    """Lossless rates with filters, and the rate when nobody wants anything."""
    rows = [
        [name, figure(entry["summary"].get("offered_mpps"), 3)]
        for name, entry in found["no-match"].items()
    ]
    return crowds(found) + "\n" + table(["nobody wants anything", "Mpps"], rows)


def flows(found: dict) -> str:
    """Rates of flow metering, live and by file."""
    rows = [
        [kind, name, _absent(entry) or figure(entry["summary"].get(key), 3, 1e-6),
         "yes" if any(row.get("differs") for row in entry["rounds"]) else "no"]
        for kind, entries in found.items()
        for name, entry in entries.items()
        for key in entry["summary"] or [""]
    ]  # fmt: skip
    return table(["", "", "Mpps: live without loss, files per core", "other sums"], rows, left=2)


def meter(found: dict) -> str:
    """Rates in the kernel, and memory by flows."""
    rows = [
        [name, *(figure(entry["summary"].get(key), 2) for key in ("delivered_mpps", "cpu_percent"))]
        for name, entry in found["rates"].items()
    ]
    states = [
        [f"{row['offered']:,}", f"{row['mib']:.0f}", f"{row['evicted']:,}"] for row in found["states"]
    ]
    rates = table(["", "Mpps", "user space, % of a core"], rows)
    return rates + "\n" + table(["flows offered to a table for 1,000,000", "MiB", "evicted"], states)


def shunting(found: dict) -> str:
    """Rates beside rules, lossless rates of both readers, and what the recorder wrote."""
    rates = [[name, figure(row["summary"]["mpps"], 3)] for name, row in found["rules"].items()]
    parts = [table(["64 bytes, 65,536 flows", "Mpps"], rates)]
    by_hub = [[name, figure(row["summary"]["mpps"], 3)] for name, row in found.get("by_hub", {}).items()]
    parts.append(table(["through a hub", "millions of rules set in a second"], by_hub))
    parts.append(record({"contenders": found["elephants"], "size": found["size"]}))
    if recorder := found["recorder"]:
        row = [f"{recorder['file_bytes']:,}", f"{recorder['wanted_file_bytes']:,}"]
        parts.append(table(["`--cutoff 16KiB`: bytes written", "computed"], [row]))
    return "\n".join(parts)


def hub_cpu(found: dict) -> str:
    """What the hub's own process takes."""
    head = [f"{found['readers']} readers", "Mpps", "packets lost", "% of a core",
            f"idle: ticks in {found['idle_seconds']:g} s", "ms by the scheduler"]  # fmt: skip
    rows = [
        [
            f"round {row['round'] + 1}",
            f"{row['offered_mpps']:.2f}",
            f"{row['lost']}",
            f"{row['percent_of_core']:.2f}",
            f"{row['idle_ticks']}",
            f"{row['idle_ns'] / 1e6:.2f}",
        ]
        for entry in found["contenders"].values()
        for row in entry["rounds"]
    ]
    return table(head, rows)


def programs(found: dict) -> str:
    """Lossless rates of each program by every way, and the latency to a callback."""
    parts = [
        f"{title}, {one['size']} bytes:\n\n{record(one)}"
        for title, one in found.items()
        if title != "latency"
    ]
    parts.append(f"a callback in immediate mode:\n\n{low_rate(found['latency'])}")
    return "\n".join(parts)


def goals(verdicts: list[dict]) -> str:
    """What was to be reached, and what was."""
    rows = []
    for one in verdicts:
        sign = ">=" if one["bound"] == "least" else "<="
        measured = ABSENT if one["figure"] is None else f"{one['figure']:.4g} {one['unit']}"
        beside = f" ({one['beside']})" if one["beside"] else ""
        goal = f"{sign} {one['number']:g} {one['unit']}"
        rows.append([one["goal"], goal, measured + beside, one["verdict"]])
    return table(["Goal", "wanted", "measured", "verdict"], rows, left=4)
