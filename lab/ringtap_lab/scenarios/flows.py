# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `probe-flows`: flow records by the probe's workers and by other programs.

Live: the highest rate of 64-byte packets of many flows at which the records account for every packet;
all that runs in user space shares one core. Files: packets for each second of processor time, of the
same flows and of a realistic mix. Programs export IPFIX to the lab's collector: whoever counts
differently is at fault.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import figures, mix, parse
from ringtap_lab.scenarios.contenders import RING_MIB, TASKSET, Contender
from ringtap_lab.scenarios.ipfix import Collector, Totals
from ringtap_lab.scenarios.lossless import highest_lossless, hint_of
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import Tool, ToolError, leftovers
from ringtap_lab.scenarios.trial import Traffic, send

LAB = Path(__file__).resolve().parent
#: Flows of 64-byte packets, packets in their file, and flows in the file with the mix.
FLOWS, SMALL_PACKETS, MIX_FLOWS = 1 << 16, 2_000_000, 20_000
SMALL, MIX = "64-byte packets", "mix"
TRIALS, TRIAL_SECONDS = 7, 4.0
#: What a program may leave unread when it ends counts as no loss: softflowd and pmacctd leave packets at
#: every rate.
UNREAD = 0.01
#: No flow ends by time while a measurement lasts.
SOFTFLOWD = (
    "softflowd {source} -n 127.0.0.1:{port} -v 10 -d -6 -m 1000000 -B {ring_bytes} "
    "-p {scratch}/softflowd.pid -c {control} -t tcp=2h -t tcp.rst=2h -t tcp.fin=2h "
    "-t udp=2h -t icmp=2h -t general=2h -t maxlife=24h -t expint=1h"
)
#: In the foreground, a signal ends softflowd without its records.
SOFTFLOWD_LIVE = (
    TASKSET + "sh -c 'trap \"softflowctl -c {scratch}/softflowd.ctl shutdown\" INT; "
    + SOFTFLOWD.replace("{control}", "{scratch}/softflowd.ctl") + " & wait $!; wait $!; exit 0'"
)  # fmt: skip
PMACCT = """\
daemonize: false
plugins: nfprobe
aggregate: src_host,dst_host,src_port,dst_port,proto,tos
nfprobe_receiver: 127.0.0.1:{port}
nfprobe_version: 10
nfprobe_maxflows: 1000000
nfprobe_timeouts: tcp=7200:tcp.rst=7200:tcp.fin=7200:udp=7200:icmp=7200:general=7200:maxlife=86400
snaplen: 128
pmacctd_pipe_size: {ring_bytes}
plugin_pipe_size: 536870912
plugin_buffer_size: 524288
"""
RINGTAP = TASKSET + "{ringtap} probe {source} --workers 1 --config {scratch}/probe.toml --json"
PMACCTD = TASKSET + "pmacctd -f {scratch}/pmacct.conf {source}"
NFSTREAM = TASKSET + f"{sys.executable} {LAB}/nfstream_flows.py {{source}}"


def config(where: str, port: int = 0) -> str:
    """A probe's configuration: flows only, as the other programs, to a collector if there is one."""
    flows = f'[[analysis]]\nkind = "flows"\nidle = "2h"\nactive = "24h"\nwhere = "{where}"\n'
    if where == "workers":
        flows += "payload_bytes = 0\n"
    export = f'[[export]]\nto = "ipfix-uniflow:udp://127.0.0.1:{port}"\n'
    return flows + export * bool(port)


def _meter(name: str, command: str, source: str, ready: str | None, note: str = "") -> Contender:
    command = command.replace("{source}", source)
    return Contender(name, command, parse.ringtap, "nothing", ready, note=note)


#: The first is ours, and each other one is compared with it.
LIVE = [
    _meter("ringtap probe, tap exclusive", RINGTAP, "-i 'tap:{dev}?exclusive&pool={ring_mib}MiB'",
          "ringtap: probe of", "packets end here"),
    _meter("ringtap probe, tap", RINGTAP, "-i 'tap:{dev}?pool={ring_mib}MiB'", "ringtap: probe of",
          "packets go on into the host's network stack, as with all below"),
    _meter("softflowd", SOFTFLOWD_LIVE, "-i {dev}", "starting data collection"),
    _meter("pmacctd", PMACCTD, "", "Exporting flows", "its plugin nfprobe is a second process"),
]  # fmt: skip
FILES = [
    _meter(name, command, source, None)
    for name, command, source in [
        ("ringtap probe", RINGTAP, "-r {file}"), ("softflowd", TASKSET + SOFTFLOWD.replace("{control}", "none"), "-r {file}"),
        ("pmacctd", PMACCTD, "-I {file}"), ("nfstream", NFSTREAM, "{file}"),
    ]
]  # fmt: skip


def seconds(run: Run) -> float:
    """About how long it takes."""
    searches = len(LIVE) * TRIALS * (TRIAL_SECONDS + run.settings.crowd_seconds)
    return run.settings.crowd_rounds * (searches + 2 * len(FILES) * TRIAL_SECONDS) + 15


def run(run: Run) -> dict:
    """Gives, live and by file, every round of every program and the spread."""
    rows: dict[str, list[dict]] = {one.name: [] for one in LIVE}
    for number in range(run.settings.crowd_rounds):
        for one in LIVE:
            row = _search(run, one, hint_of(rows[one.name]))
            if row:
                rows[one.name].append({"round": number, **row})
                run.say(f"probe-flows  {one.name:<30} {row['lossless_pps'] / 1e6:7.3f} Mpps without loss")
    found = {"live": _entries(run, LIVE, rows, "lossless_pps")}
    for name, make in ((SMALL, _small), (MIX, _mix)):
        file = sandbox.SCRATCH / "flows.pcap"
        found[name] = _files(run, name, file, make(file))
        file.unlink()
    return found


def _entries(run: Run, all_of: list[Contender], rows: dict[str, list[dict]], key: str) -> dict:
    return {
        one.name: {
            "command": one.command, "note": one.note, "missing": run.programs.missing(one),
            "rounds": rows[one.name], "summary": figures.summary(rows[one.name], (key,)),
        }
        for one in all_of
    }  # fmt: skip


def _fill(run: Run, one: Contender, port: int, file: Path | None = None) -> str:
    """The command of a program, whose configuration now names this collector."""
    ring_bytes = RING_MIB << 20
    source = "" if file else f"pcap_interface: {sandbox.CAPTURED}\n"
    pmacct = source + PMACCT.format(port=port, ring_bytes=ring_bytes)
    (sandbox.SCRATCH / "pmacct.conf").write_text(pmacct)
    (sandbox.SCRATCH / "probe.toml").write_text(config("workers", port))
    return run.programs.fill(one.command, port=port, ring_bytes=ring_bytes, file=file)


def _live_trial(run: Run, one: Contender, rate: str) -> dict:
    with Collector() as collector:
        with Tool(_fill(run, one, collector.port)) as tool:
            tool.wait_ready(one.ready, one.attached)
            sent = send(run.programs, Traffic(64, rate, run.settings.crowd_seconds, FLOWS))
            tool.wait_idle(one.quiet_seconds)
            output = tool.end()
        totals = collector.totals()
    lost = sent.packets - totals.packets
    problems = [f"left behind: {left}" for left in leftovers()]
    # Headers and payload of a 64-byte frame, without Ethernet's header and check sequence.
    if lost < 0 or totals.bytes != 46 * totals.packets:
        problems.append(f"its records say {totals}, {sent.packets} packets were sent")
    return {
        "offered_pps": figures.rate_mpps(sent.packets, sent.elapsed_ns) * 1e6, "offered": sent.packets, "lost": lost,
        "delivered_pps": figures.rate_mpps(totals.packets, sent.elapsed_ns) * 1e6,
        "records": totals.records, "problems": problems, "output": output,
    }  # fmt: skip


def _search(run: Run, one: Contender, hint: float | None) -> dict | None:
    trials = []

    def probe(rate: str) -> tuple[float, float, bool] | None:
        row = run.attempt(one, lambda: _live_trial(run, one, rate))
        if row is None:
            return None
        trials.append({"rate": rate, **row})
        lossless = row["lost"] <= UNREAD * row["offered"] and not row["problems"]
        return row["offered_pps"], row["delivered_pps"], lossless

    found = highest_lossless(probe, hint)
    return None if found is None else {**found, "trials": trials}


def _small(file: Path) -> Totals:
    small_packets(file, SMALL_PACKETS)
    return Totals(FLOWS, SMALL_PACKETS, 46 * SMALL_PACKETS)


def small_packets(file: Path, packets: int) -> None:
    """Writes 64-byte packets of many flows in turn, as those that are sent live."""
    ends = [(True, 18)]
    frames = [next(mix.datagrams(number, 9, ends)) for number in range(FLOWS)]
    with file.open("wb", 1 << 20) as out:
        mix.write(out, ((number / 1e6, frames[number % FLOWS]) for number in range(packets)))


def _mix(file: Path) -> Totals:
    made = mix.make(file, MIX_FLOWS)
    return Totals(2 * made.flows, made.packets, made.bytes)


def _file_trial(run: Run, one: Contender, file: Path, truth: Totals) -> dict:
    with Collector() as collector:
        command = _fill(run, one, collector.port, file)
        before = os.times()
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=600)
        after, totals = os.times(), collector.totals()
    if done.returncode != 0:
        raise ToolError(f"{command}: exit code {done.returncode}: {done.stderr.strip()[-600:]}")
    if one.name == "nfstream":
        found = parse.last_json(done.stdout, "records", one.name)
        # One record for both directions of a flow.
        both = found["records"] * truth.records // (FLOWS if truth.records == FLOWS else MIX_FLOWS)
        totals = Totals(both, found["packets"], found["bytes"])
    used = after.children_user + after.children_system - before.children_user - before.children_system
    differs = (totals.records, totals.packets, totals.bytes) != (
        truth.records, truth.packets, truth.bytes
    )  # fmt: skip
    return {"pps": truth.packets / used, "cpu_seconds": used, "totals": vars(totals), "differs": differs}


def _files(run: Run, name: str, file: Path, truth: Totals) -> dict:
    rows: dict[str, list[dict]] = {one.name: [] for one in FILES}
    for number in range(run.settings.crowd_rounds):
        for one in FILES:
            row = run.attempt(one, lambda one=one: _file_trial(run, one, file, truth))
            if row is None:
                continue
            rows[one.name].append({"round": number, **row})
            wrong = f"  DIFFERS: {row['totals']} of {truth}" if row["differs"] else ""
            run.say(f"probe-flows  file, {name}: {one.name:<16} {row['pps'] / 1e6:7.3f} Mpps{wrong}")
    return _entries(run, FILES, rows, "pps")


def _ratios(result: dict, kind: str, key: str) -> dict[str, float]:
    """By other program: median over the rounds of our rate divided by the other one's."""
    found = result.get("probe-flows", {}).get(kind, {})
    rows = {name: entry.get("rounds", []) for name, entry in found.items()}
    mine = rows.get((LIVE if kind == "live" else FILES)[0].name, [])
    ratios = {
        name: figures.ratios(mine, other, key) for name, other in rows.items() if not name.startswith("ring")
    }
    return {name: figures.spread(each)["median"] for name, each in ratios.items() if each}


def least(kind: str, key: str) -> Callable[[dict], float | None]:
    """Our rate against that of the best other program."""
    return lambda result: min(_ratios(result, kind, key).values(), default=None)


def each(kind: str, key: str) -> Callable[[dict], str]:
    """Our rate against that of each other program, in words."""

    def words(result: dict) -> str:
        return ", ".join(f"{name} {ratio:.1f} x" for name, ratio in _ratios(result, kind, key).items())

    return words
