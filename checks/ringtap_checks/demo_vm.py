# SPDX-License-Identifier: MIT OR Apache-2.0
"""Two virtual machines of an unmodified QEMU read one capture of the host, each its share.

Exit status: 0 if everyone got exactly its packets, 1 if not, 2 if nothing could be run.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from ringtap_checks.preflight import asked_program
from ringtap_checks.tool import Tool, ToolError, wait_all_idle
from ringtap_lab.formatters.tables import grid
from ringtap_lab.guests import machine as guest
from ringtap_lab.guests.machine import Guest, GuestError
from ringtap_lab.manager import sandbox
from ringtap_lab.manager.counts import CountError, last_json

#: Flow n has the UDP source port 10000 + n.
FLOWS = 4
SEND = "{ringtap} send -i {sender} --size 200 --rate 20kpps --duration 3 --flows {flows} --quiet --json"
HUB = (
    "{ringtap} hub -i tap:{dev}?direction=in -g ids -g first:'udp src port 10000'"
    " --socket {scratch}/hub.sock"
)
HOST_READER = "{ringtap} count --quiet --json -i 'hub:{group}?socket={scratch}/hub.sock'"
ATTACH = (
    "{ringtap} vm --folder {scratch}/vm attach --qmp {qmp} --name {name} {groups}"
    " --socket {scratch}/hub.sock"
)
#: Machine, group, filter, and the share of the packets that the reader gets.
READERS = [
    ("vm1", "ids", "udp src port 10001", 1 / 4),
    ("vm1", "first", "", 1 / 4),
    ("vm2", "ids", "udp src portrange 10002-10003", 2 / 4),
    ("vm2", "ids", "tcp", 0),
]
GRANTS = {"vm1": ["ids", "first"], "vm2": ["ids"]}


def say(text: str) -> None:
    """Tells the user, with the seconds since the start."""
    print(f"{time.monotonic() - BEGIN:5.1f} s  {text}", flush=True)


def start_readers(machine: Guest) -> list[str]:
    """Starts the agent and the readers of a guest; gives the files that they write."""
    machine.run("ringtap guest >/agent 2>&1 &")
    names = []
    for number, (name, group, text, _) in enumerate(READERS):
        if name == machine.name:
            names.append(f"/reader{number}")
            machine.run(f"until [ -S /run/ringtap/host/{group}.sock ]; do sleep 0.1; done", 120)
            machine.run(
                f"ringtap count -q --json -i host:{group} {text} >/reader{number} & p{number}=$!"
            )
    status = machine.run(
        f"until case \"$(ringtap guest --status 2>&1)\" in {readers_pattern(machine.name)})"
        " true ;; *) false ;; esac; do sleep 0.2; done; ringtap guest --status",
        120,
    )
    say(f"{machine.name}: {status.strip()}")
    return names


def readers_pattern(name: str) -> str:
    """What `ringtap guest --status` says of the sockets once all readers are there."""
    groups = [group for machine, group, *_ in READERS if machine == name]
    # Sockets in any order: with two groups there is one reader of each.
    return f"*': {groups.count(groups[0])} reader'" * len(set(groups)) + "*"


def fill(command: str, ringtap: Path, **more: str) -> str:
    """A command line with its places filled in."""
    return command.format(ringtap=ringtap, dev=sandbox.CAPTURED, sender=sandbox.SENDER, scratch=sandbox.SCRATCH,
                          flows=FLOWS, **more)  # fmt: skip


def stop_readers(machine: Guest) -> dict[int, dict]:
    """Ends the readers of a guest; gives what each says."""
    found = {}
    for number, (name, *_) in enumerate(READERS):
        if name == machine.name:
            said = machine.run(f"kill -INT $p{number}; wait $p{number}; cat /reader{number}")
            found[number] = last_json(said, "balanced")
    return found


def demo(ringtap: Path) -> int:
    """The whole run, inside the sandbox; gives the exit status."""
    sandbox.make_veth()
    scratch = sandbox.SCRATCH
    guest.make_image(scratch / "image", [ringtap])
    say(f"two virtual machines boot ({guest.acceleration()}), and a hub starts on {sandbox.CAPTURED}")
    with ExitStack() as stack:
        machines = [stack.enter_context(Guest(name, scratch / "image", has_iommu=False)) for name in GRANTS]
        hub = stack.enter_context(Tool(fill(HUB, ringtap)))
        hub.wait_ready("ringtap: hub of", "xdp")
        host = [
            stack.enter_context(Tool(fill(HOST_READER, ringtap, group=group)))
            for group in ("ids", "first")
        ]
        for machine in machines:
            machine.booted()
        attached = []
        for machine in machines:
            groups = " ".join(f"-g {group}" for group in GRANTS[machine.name])
            command = fill(ATTACH, ringtap, qmp=str(machine.qmp), name=machine.name, groups=groups)
            attached.append(stack.enter_context(Tool(command)))
            attached[-1].wait_ready("attached, for groups", "nothing")
            say(f"memory plugged into {machine.name}: {groups}")
        for machine in machines:
            start_readers(machine)
        for tool in host:
            tool.wait_ready(None, "pool")
        sending = fill(SEND, ringtap)
        say(sending)
        done = subprocess.run(shlex.split(sending), capture_output=True, text=True, check=True)
        sent = last_json(done.stdout, "sent")["sent"]
        wait_all_idle([*host, *attached], 1.0)
        listed = [str(ringtap), "vm", "--folder", str(scratch / "vm"), "list"]
        say("the host's view:\n" + subprocess.check_output(listed, text=True))
        objects = subprocess.check_output([*listed, "--json"], text=True).splitlines()
        reports = {}
        for machine in machines:
            reports.update(stop_readers(machine))
        rows = [[f"{READERS[at][0]}, host:{READERS[at][1]} {READERS[at][2]}", report, round(sent * READERS[at][3])]
                for at, report in reports.items()]  # fmt: skip
        for name, tool in zip(("ids", "first"), host):
            share = 1 if name == "ids" else 1 / FLOWS
            rows.append([f"host, hub:{name}", last_json(tool.end(), "balanced"), round(sent * share)])
        for machine, tool in zip(machines, attached):
            tool.end()
            say(f"{machine.name}: unplugged")
        counters = hub.end()
    exact = show(rows) and copied(objects, sent)
    say("\n".join(line for line in counters.splitlines() if "offered" in line))
    left = [path.name for path in (scratch / "vm").iterdir()]
    say(f"left behind: {', '.join(left) or 'nothing'}; {sent:,} packets were sent")
    return 0 if exact and not left and ": balanced" in counters else 1


def show(rows: list[list]) -> bool:
    """Prints every reader's counters; gives whether each got exactly its packets."""
    lines, exact = [], True
    for name, report, expected in rows:
        delivered, lost = report["delivered"], sum(report["dropped"].values())
        is_exact = delivered == expected and lost == 0 and report["balanced"] is True
        exact = exact and is_exact
        verdict = "exactly" if is_exact else "WRONG"
        lines.append([name, f"{delivered:,}", f"{expected:,}", f"{lost:,}", verdict])
    head = ["reader", "delivered", "expected", "lost", ""]
    print(grid([head, *lines]) + "\n", flush=True)
    return exact


def copied(objects: list[str], sent: int) -> bool:
    """Whether each machine's memory got only what its readers want."""
    found = {(vm["name"], group["group"]): group["counters"]["copied"]
             for vm in map(json.loads, objects) for group in vm["groups"]}  # fmt: skip
    expected = {(name, group): 0 for name, groups in GRANTS.items() for group in groups}
    for name, group, _, share in READERS:
        expected[name, group] += round(sent * share)
    return found == expected


def main(words: list[str]) -> int:
    """Runs what the command line asks for; gives the exit status."""
    ringtap = asked_program("demo_vm", "demo-vm", __doc__, words, guest.unable())
    if not ringtap:
        return 2
    try:
        return sandbox.run_inside(lambda: demo(ringtap))
    except (ToolError, GuestError, CountError, OSError, subprocess.SubprocessError) as error:
        print(f"demo-vm: {error}", file=sys.stderr)
        return 1


BEGIN = time.monotonic()
