# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures capture in virtual machines beside what an ordinary virtual machine has; see --help.

Exit status: 0 if everything could be measured (goals may be missed), 1 if not, 2 if nothing could.
"""

from __future__ import annotations

import argparse
import json
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ringtap_lab import root
from ringtap_lab.manager import programs, sandbox
from ringtap_lab.root import RESULTS, ROOT
from ringtap_lab.scenarios import crowd, figures, guest, machine, parse, report_vm
from ringtap_lab.scenarios.contenders import Programs
from ringtap_lab.scenarios.guest import Guest
from ringtap_lab.scenarios.guest_trial import (
    DEVICE,
    RING_MIB,
    TRIAL_SECONDS,
    Lab,
    search,
    start_packet,
    start_ringtap,
    stop_packet,
    stop_ringtap,
    trial,
)  # fmt: skip
from ringtap_lab.scenarios.preflight import unable
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import ToolError
from ringtap_lab.scenarios.trial import Traffic

SIZES = (64, 1500)
FILTER_FLOWS, FILTER_SECONDS = 1000, 5.0
ROUND_TRIPS, ROUND_TRIP_PAUSE = 200, 0.02
IDLE_SECONDS = 10.0
PLUG_ROUNDS = 3
ETH_ASKED, ETH_ANSWER = 0x88B5, 0x88B6
#: One flow, and none.
#: A reader that is woken as seldom as that of AF_PACKET: see BLOCK_TIMEOUT_MS of packet_reader.c.
BLOCKS = "?watermark=20000&limit=60"
FILTER_TEXT, FILTER_NOTHING = "udp src port 10007", "udp src port 9"
#: A line of 1 Gbit/s; the bytes of each packet that are not in its size: preamble and gap.
LINE_BITS, LINE_GAP = 1_000_000_000, 20
LINE_SIZES = (64, 128, 256, 512, 1024, 1518)
FILTERS = {"all": "", "1 in 1,000": FILTER_TEXT}

HERE = Path(__file__).resolve().parent


def note_rate(lab: Lab, size: int, name: str, row: dict) -> None:
    """Keeps and shows a lossless rate."""
    lab.result.setdefault("rates", {}).setdefault(str(size), {})[name] = row
    limit = " (the sender's limit)" if row.get("limited") else ""
    lab.run.say(f"rates  {size:>4} B  {name:<24} {row['lossless_pps']:>10,.0f} pps{limit}")


def rates_without(lab: Lab) -> None:
    """Lossless rates of a reader on the host, and behind the machine's own network device."""

    def native(traffic: Traffic) -> dict:
        row = crowd.measure(lab.run, traffic)
        return {"offered": row["offered"], "received": [row["delivered_least"]],
                "elapsed_ns": row["elapsed_ns"]}  # fmt: skip

    def virtio(traffic: Traffic) -> dict:
        return trial(lab, start_packet, stop_packet, traffic, lab.machines[:1])

    for size in SIZES:
        note_rate(lab, size, report_vm.NATIVE, search(lab, size, native, None))
        note_rate(lab, size, report_vm.VIRTIO, search(lab, size, virtio, 25e3))


def rates_with(lab: Lab) -> None:
    """Lossless rates of readers in one machine and in two."""

    def ringtap(readers: int, used: list[Guest]) -> Callable[[Traffic], dict]:
        return lambda traffic: trial(
            lab,
            lambda one: start_ringtap(one, readers),
            lambda one: stop_ringtap(one, readers),
            traffic,
            used,
        )

    for size in SIZES:
        one = search(lab, size, ringtap(1, lab.machines[:1]), 200e3)
        note_rate(lab, size, report_vm.ONE, one)
        hint = max(one["lossless_pps"] / 2, 1000)
        note_rate(lab, size, report_vm.TWO, search(lab, size, ringtap(4, lab.machines), hint))


def filter_row(
    lab: Lab, name: str, rate: str, start: Callable, stop: Callable, text: str = FILTER_TEXT
) -> None:
    """Time of a guest's processors while its reader wants one packet in a thousand."""
    used = lab.machines[:1]
    traffic = Traffic(64, rate, FILTER_SECONDS, FILTER_FLOWS)
    found = trial(lab, lambda one: start(one, text), stop, traffic, used)
    offered, (received,) = found["offered"], found["received"]
    if abs(received - offered / FILTER_FLOWS * (text == FILTER_TEXT)) > 1:
        lab.run.problem(f"filter, {name}: {received} of {offered} received")
    before = used[0].guest_ns()
    time.sleep(found["measured_seconds"])
    # What the guest does anyway.
    worked = max(0, found["guest_ns"] - (used[0].guest_ns() - before))
    row = {"offered": offered, "received": received, "guest_ns_per_offered": worked / offered}
    lab.result.setdefault("filter", {})[name] = row
    lab.run.say(f"filter  {name:<24} {row['guest_ns_per_offered']:,.0f} ns of the guest per offered packet")


def filter_without(lab: Lab) -> None:
    """The filter runs in the guest's kernel."""
    filter_row(lab, report_vm.VIRTIO, "20kpps", start_packet, stop_packet)


def filter_with(lab: Lab) -> None:
    """The filter runs in the host's kernel."""

    def ours(device: str) -> tuple[Callable, Callable]:
        return lambda one, text: start_ringtap(one, 1, text, device), lambda one: stop_ringtap(one, 1)

    for rate in ("20kpps", "200kpps"):
        filter_row(lab, f"{report_vm.ONE}, {rate}", rate, *ours(DEVICE))
    filter_row(lab, f"{report_vm.ONE}, 200kpps, {report_vm.SELDOM}", "200kpps", *ours(DEVICE + BLOCKS))
    filter_row(lab, f"{report_vm.ONE}, none wanted", "200kpps", *ours(DEVICE), FILTER_NOTHING)


def line_row(lab: Lab, size: int, way: str, wanted: str, start: Callable, stop: Callable, number: int) -> None:
    """What readers get of packets that fill the line, and what it costs."""
    used, text = lab.machines[:number], FILTERS[wanted]
    rate = LINE_BITS // ((size + LINE_GAP) * 8)
    traffic = Traffic(size, f"{rate}pps", TRIAL_SECONDS, FILTER_FLOWS)
    found = trial(lab, lambda one: start(one, text), stop, traffic, used)
    due = found["offered"] / (FILTER_FLOWS if text else 1)
    nanoseconds = found["measured_seconds"] * 1e9
    row = {
        "bytes": size,
        "wanted": wanted,
        "offered_pps": found["offered"] / found["elapsed_ns"] * 1e9,
        # The sender ends in the middle of a turn.
        "captured_share": min(1.0, min(found["received"]) / due),
        "host_cpu_percent": found["host_ns_per_packet"] * found["offered"] / nanoseconds * 100,
        "guest_cpu_percent": found["guest_ns"] / nanoseconds * 100,
    }
    lab.result.setdefault("line", {})[f"{size} B, {way}, {wanted}"] = row
    lab.run.say(f"line  {size:>4} B  {way}, {wanted}: {row['captured_share']:.2%}")


def line_without(lab: Lab) -> None:
    """Behind the machine's own network device."""
    for size in LINE_SIZES:
        for wanted in FILTERS:
            line_row(lab, size, report_vm.VIRTIO, wanted, start_packet, stop_packet, 1)


def line_with(lab: Lab) -> None:
    """One machine, and two; the filter runs in the host's kernel."""
    start, stop = (lambda one, text: start_ringtap(one, 1, text)), (lambda one: stop_ringtap(one, 1))
    for size in LINE_SIZES:
        for number, way in ((1, "1 VM"), (2, "2 VMs")):
            for wanted in FILTERS:
                line_row(lab, size, way, wanted, start, stop, number)


def latency(lab: Lab, name: str, command: str) -> None:
    """Round trips to a sleeping libpcap program in a guest; the way back is the same for all."""
    one = lab.machines[0]
    one.run(": >/r0")
    one.run(f"{command} >/r0 2>&1 & p0=$!")
    one.run("until [ -s /r0 ]; do sleep 0.1; done")
    lab.settle()
    trips = sorted(round_trips())
    one.run("kill -9 $p0; wait $p0")
    if len(trips) < ROUND_TRIPS * 0.9:
        raise ToolError(f"{name}: {len(trips)} of {ROUND_TRIPS} answers: {one.run('cat /r0')}")
    median, p99 = trips[len(trips) // 2], trips[len(trips) * 99 // 100]
    row = {"answers": len(trips), "median_ns": median, "p99_ns": p99}
    lab.result.setdefault("latency", {})[name] = row
    lab.run.say(f"latency  {name:<24} median {median / 1e3:.0f} us, p99 {p99 / 1e3:.0f} us")


def latency_without(lab: Lab) -> None:
    """Through the machine's own network device."""
    latency(lab, report_vm.VIRTIO, "pcap_echo eth0 eth0")


def latency_with(lab: Lab) -> None:
    """Through the shared memory."""
    latency(lab, report_vm.ONE, "ringtap exec -q -- pcap_echo host:all eth0")


def round_trips() -> list[int]:
    """Nanoseconds of each round trip that had an answer."""
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_ANSWER))
    sender.bind((sandbox.SENDER, ETH_ANSWER))
    sender.settimeout(1.0)
    head = bytes.fromhex("020000000001020000000002") + ETH_ASKED.to_bytes(2, "big")
    trips = []
    for number in range(ROUND_TRIPS):
        time.sleep(ROUND_TRIP_PAUSE)
        asked = number.to_bytes(8, "big") + bytes(38)
        begin = time.perf_counter_ns()
        sender.send(head + asked)
        try:
            while sender.recv(2048)[14:60] != asked:
                pass
        except TimeoutError:
            continue
        trips.append(time.perf_counter_ns() - begin)
    sender.close()
    return trips


def idle(lab: Lab, name: str) -> None:
    """Ticks of all processors without traffic."""
    one = lab.machines[0]
    qemu = Path(f"/proc/{one.process.pid}/stat")

    def look() -> list[int]:
        fields = qemu.read_text().rpartition(")")[2].split()
        return [int(fields[11]) + int(fields[12]), *(tool.cpu_ticks() for tool in lab.tools[:2])]

    lab.settle()
    before = look()
    guest_ticks = one.ticks_of(IDLE_SECONDS)
    spent = [guest_ticks, *(now - then for now, then in zip(look(), before))]
    row = dict(zip(("guest", "QEMU", "hub", "vm attach"), spent))
    lab.result.setdefault("idle", {})[name] = row
    lab.run.say(f"idle  {name:<24} ticks in {IDLE_SECONDS:g} s: {row}")


def idle_without(lab: Lab) -> None:
    """The machine alone."""
    idle(lab, "without Ringtap")


def idle_with(lab: Lab) -> None:
    """With a reader that waits."""
    start_ringtap(lab.machines[0], 1)
    idle(lab, report_vm.ONE)
    stop_ringtap(lab.machines[0], 1)


def plug(lab: Lab) -> None:
    """Seconds from the start of `vm attach` to the first packet in the guest, and of an unplug."""
    one, tool = lab.machines[-1], lab.tools.pop()
    rows = []
    traffic = ["ringtap", "send", "-i", sandbox.SENDER, "--rate", "1000pps", "--duration", "600", "-q"]
    traffic[0] = str(lab.run.programs.ringtap)
    sender = subprocess.Popen(traffic, stdout=subprocess.DEVNULL)
    try:
        for _ in range(PLUG_ROUNDS):
            begin = time.monotonic()
            tool.end()
            unplugged = time.monotonic() - begin
            since = len(one.console())
            one.tell("until ringtap count -q -c 1 -i host:all >/dev/null 2>&1; do :; done; echo GUEST first")
            time.sleep(1.0)
            begin = time.monotonic()
            tool = lab.attach(one)
            plugged = time.monotonic() - begin
            one.wait_for("GUEST first\n", 60, since)
            first = time.monotonic() - begin
            rows.append({"plugged_s": plugged, "first_packet_s": first, "unplugged_s": unplugged})
            lab.run.say(f"plug  first packet {first:.2f} s, unplug {unplugged:.2f} s")
    finally:
        sender.kill()
        sender.wait()
    lab.tools.append(tool)
    keys = ("plugged_s", "first_packet_s", "unplugged_s")
    lab.result["plug"] = {"rounds": rows, "summary": figures.summary(rows, keys)}


#: What is measured before and after the hub starts.
SECTIONS = {
    "idle": (idle_without, idle_with),
    "latency": (latency_without, latency_with),
    "filter": (filter_without, filter_with),
    "line": (line_without, line_with),
    "rates": (rates_without, rates_with),
    "plug": (None, plug),
}


def make_network() -> None:
    """The veth pair, whose captured side is in a bridge with a tap of the first machine."""
    sandbox.make_veth()
    for command in (
        "ip tuntap add tap1 mode tap",
        "ip link add br0 type bridge stp_state 0 mcast_snooping 0",
        f"ip link set {sandbox.CAPTURED} master br0",
        "ip link set tap1 master br0",
        "ip link set tap1 up",
        "ip link set br0 up",
    ):
        subprocess.run(command.split(), check=True)


def attempt(run: Run, name: str, work: Callable[[], None]) -> None:
    """One section; what fails is on record, and the others go on."""
    try:
        work()
    except (ToolError, parse.ReportError, OSError, subprocess.SubprocessError) as error:
        run.problem(f"{name}: {error}")


def measure(run: Run, command: str, only: list[str], folder: Path) -> int:
    """The whole run, inside the sandbox; gives the exit status."""
    make_network()
    echo = sandbox.SCRATCH / "pcap_echo"
    source = HERE / "pcap_echo.c"
    subprocess.run(["cc", "-O2", "-Wall", "-o", echo, source, "-lpcap"], check=True)
    programs.here(run.programs.ringtap, run.say)
    ours = run.programs
    guest.make_image(sandbox.SCRATCH / "image", [ours.ringtap, ours.library, ours.packet_reader, echo])
    stored = folder / "vm-latest.json"
    result = json.loads(stored.read_text()) if stored.exists() else {}
    result |= {
        "date": machine.now(),
        "command": command,
        "revision": machine.revision(ROOT),
        "machine": machine.facts(),
        "acceleration": guest.acceleration(),
        "settings": {"trial_seconds": TRIAL_SECONDS, "ring_mib": RING_MIB},
        "problems": run.problems,
    }
    busy = machine.wait_quiet(30)["busy_share"]
    for name in only:
        about = f"{machine.now()}; {busy:.0%} of the cores were busy before"
        result.setdefault("measured", {})[name] = about
    with ExitStack() as stack:
        image = sandbox.SCRATCH / "image"
        machines = [
            stack.enter_context(Guest("vm1", image, tap="tap1")),
            # Its unplugs are measured: emulated kernels with an IOMMU do not always come back.
            stack.enter_context(Guest("vm2", image, has_iommu=False)),
        ]
        for one in machines:
            one.booted()
        machines[0].run("ip link set eth0 up promisc on")
        lab = Lab(run, machines, result)
        try:
            with lab.stack:
                for at in (0, 1):
                    if at == 1:
                        lab.start_hub()
                    for name in only:
                        if work := SECTIONS[name][at]:
                            attempt(run, name, lambda work=work: work(lab))
        finally:
            store(result, stored)
    print(report_vm.goal_table(result), f"bench-vm: wrote {stored}", sep="\n")
    return 1 if run.problems else 0


def store(result: dict, stored: Path) -> None:
    """Writes what is known so far, as JSON and as a page."""
    result["goals"] = report_vm.goals(result)
    stored.parent.mkdir(parents=True, exist_ok=True)
    stored.write_text(json.dumps(result, indent=1) + "\n")
    stored.with_suffix(".md").write_text(report_vm.markdown(result))


def main(words: list[str]) -> int:
    """Runs what the command line asks for; gives the exit status."""
    parser = argparse.ArgumentParser(
        prog="ringtap-lab bench-vm",
        description="Measures capture in two virtual machines beside AF_PACKET behind virtio-net, in"
        " a private network. Needs root. About 10 minutes; writes vm-latest.md and .json.",
    )
    parser.add_argument("--only", choices=SECTIONS, action="append", help="this section; repeatable")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR")
    parser.add_argument("--target", type=Path, metavar="DIR", help="cargo's target folder")
    asked = parser.parse_args(words)
    target = (asked.target or root.target()).resolve()
    release = target / "release"
    run = Run(Programs(release / "ringtap", programs.reader("packet_reader"), release / "libringtap_pcap.so"))
    if why := unable("ringtap-lab bench-vm", "bench-vm", [run.programs.ringtap]) or guest.unable():
        print(f"bench-vm: {why}", file=sys.stderr)
        return 2
    command = shlex.join(["ringtap-lab", "bench-vm", *words])
    only = asked.only or list(SECTIONS)
    return sandbox.run_inside(lambda: measure(run, command, only, asked.out.resolve()))
