# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attacks of an unprivileged user on a hub: what do honest readers lose, what stays behind?

Two honest readers of an ordinary user check the numbers that the sender puts into each packet. The
attackers are another ordinary user, listed in the same group.

Exit status: 0 if every check held, 1 if one failed, 2 if nothing could be run, 130 if interrupted.

Invariants
- The sender's counter in the kernel says what was sent; no reader has a say.
- No check depends on time: each waits for its condition.
- All attackers together are one session, as a user's are: the scheduler gives them one share.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ringtap_lab import root
from ringtap_lab.attack import attacks
from ringtap_lab.attack.attacks import ATTACKS
from ringtap_lab.formatters.tables import grid
from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import parse, tool
from ringtap_lab.scenarios.preflight import unable
from ringtap_lab.scenarios.tool import Tool, ToolError, leftovers

ATTACKER, HONEST, VISITOR = "nobody", "daemon", "bin"
READERS = 2
#: A mapping of a pool or a control region.
SHARED = re.compile(r"memfd:|bpf")
VERBOSE = bool(os.environ.get("CHAOS_VERBOSE"))
FRAME_BYTES = 128
#: Longest wait for a condition. A busy machine is slow, and not a failure.
PATIENCE_SECONDS = 240.0
#: The hub may keep so much memory after the attacks: its allocator does not return everything.
MAX_GROWTH_KIB = 32 * 1024
CONFIG = """
[[source]]
device = "tap:{device}?exclusive&direction=in&pool={pool}"
[[group]]
name = "all"
users = ["{attacker}", "{honest}", "{visitor}"]
"""


@dataclass(frozen=True)
class Plan:
    """One phase: what is sent, for how long, and what attacks meanwhile."""

    name: str
    rate: str
    seconds: float
    attacks: list[str]
    #: Whether honest readers must lose nothing.
    lossless: bool


@dataclass(frozen=True)
class Phase:
    """What came of a phase."""

    plan: Plan
    sent: int
    #: Numbered packets that the sender's device did not take.
    refused: int
    elapsed_ns: int
    reports: list[parse.Report]
    #: Packets that the readers miss by the numbers in the packets.
    missing: list[int]
    attempts: int
    #: How often another honest user came and attached meanwhile, and the longest wait for that.
    visits: int
    longest_wait_s: float


@dataclass(frozen=True)
class Belongings:
    """What the hub has: descriptors, shared mappings, memory of its own."""

    descriptors: int
    mappings: int
    memory_kib: int

    @classmethod
    def of(cls, pid: int) -> Belongings:
        """Those of a process now."""
        process = Path(f"/proc/{pid}")
        status = (process / "status").read_text()
        memory = re.search(r"RssAnon:\s+(\d+) kB", status)
        return cls(
            len(list((process / "fd").iterdir())),
            sum(bool(SHARED.search(line)) for line in (process / "maps").open()),
            int(memory.group(1)) if memory else 0,
        )

    def within(self, before: Belongings) -> bool:
        """Whether nothing was left behind since then."""
        return (
            self.descriptors <= before.descriptors
            and self.mappings <= before.mappings
            and self.memory_kib <= before.memory_kib + MAX_GROWTH_KIB
        )


class Setup:
    """A hub, and the commands of those who use it."""

    def __init__(self, ringtap: Path, pool: str) -> None:
        self.socket = sandbox.SCRATCH / "hub.sock"
        self.ringtap = _visible(ringtap)
        config = sandbox.SCRATCH / "hub.toml"
        config.write_text(
            CONFIG.format(device=sandbox.CAPTURED, pool=pool, attacker=ATTACKER, honest=HONEST,
                visitor=VISITOR)
        )
        self.hub = Tool(f"{self.ringtap} hub -c {config} --socket {self.socket}")

    def reader(self) -> Tool:
        """An honest reader."""
        become = f"setpriv --reuid={HONEST} --regid={HONEST} --clear-groups"
        device = f"hub:all?socket={self.socket}"
        return Tool(f"{become} {self.ringtap} count --quiet --json --stamps --name honest -i {device}")

    def attacks(self, plan: Plan, seed: int) -> Tool:
        """The attackers of a phase."""
        script = attacks.__file__
        return Tool(
            f"{sys.executable} {script} mix --socket {self.socket} --seconds {plan.seconds:g}"
            f" --user {ATTACKER} --seed {seed} --only {','.join(plan.attacks)}"
            f" --at-once {min(4, len(plan.attacks))} --slice {max(2.0, min(10.0, plan.seconds / 6)):g}"
        )

    def visitor(self, seconds: float) -> Tool:
        """An honest user that attaches again and again."""
        script = attacks.__file__
        return Tool(
            f"{sys.executable} {script} visit --socket {self.socket} --user {VISITOR} --seconds {seconds:g}"
        )

    def status(self) -> dict:
        """The hub's counters."""
        command = f"{self.ringtap} status --socket {self.socket}"
        done = subprocess.run(
            shlex.split(command), capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
        )
        if done.returncode != 0:
            raise ToolError(f"{command}: {done.stderr.strip()[-300:]}")
        return json.loads(done.stdout)

    def sender(self, plan: Plan) -> subprocess.Popen:
        """Sends stamped packets for the time of the phase."""
        command = (
            f"{self.ringtap} send -i {sandbox.SENDER} --size {FRAME_BYTES} --rate {plan.rate} --flows 64"
            f" --duration {plan.seconds:g} --stamp --quiet --json"
        )
        return subprocess.Popen(
            shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip


def _visible(program: Path) -> Path:
    """The program at a path that every user can enter."""
    place = sandbox.SCRATCH / "ringtap"
    if not place.exists():
        place.touch()
        subprocess.run(["mount", "--bind", str(program), str(place)], check=True)
    return place


def wait_until(what: str, holds: Callable[[], bool], must_live: list[Tool]) -> None:
    """Waits for a condition."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        for one in must_live:
            one.must_live()
        if time.monotonic() > end:
            raise ToolError(f"after {PATIENCE_SECONDS:g} s still not: {what}")
        time.sleep(0.1)


def run(setup: Setup, plan: Plan, seed: int) -> Phase:
    """One phase: readers, attackers, packets; then all but the hub end."""
    with ExitStack() as stack:
        readers = [stack.enter_context(setup.reader()) for _ in range(READERS)]
        wait_until("honest readers attach", lambda: len(_honest(setup.status())) == READERS, readers)
        lost_before = _lost_for_all(setup.status())
        attackers = stack.enter_context(setup.attacks(plan, seed)) if plan.attacks else None
        visitor = stack.enter_context(setup.visitor(plan.seconds))
        sender = setup.sender(plan)
        try:
            said, errors = sender.communicate(timeout=plan.seconds + PATIENCE_SECONDS)
        finally:
            sender.kill()
        if sender.returncode != 0:
            raise ToolError(f"the sender: {errors.strip()[-300:]}")
        sent, elapsed_ns = parse.sender(said)
        if attackers:
            wait_until("the attackers end", lambda: attackers.process.poll() is not None, [setup.hub])
        wait_until("the visitor ends", lambda: visitor.process.poll() is not None, [setup.hub])
        for one in readers:
            one.must_live()
        has_read_all = lambda: _has_read_all(setup.status(), sent, lost_before)
        wait_until("honest readers have read all", has_read_all, [setup.hub, *readers])
        attempts = _attempts(attackers) if attackers else 0
        seen = parse.last_json(visitor.output(), "visits", "the visitor")
        if VERBOSE:
            print(f"  {seen}", flush=True)
        texts = []
        for one in readers:
            one.ask_to_end()
        for one in readers:
            texts.append(one.end())
    reports = [parse.ringtap(text) for text in texts]
    refused = parse.last_json(said, "refused", "ringtap send")["refused"]
    return Phase(
        plan, sent, refused, elapsed_ns, reports, [_missing(text) for text in texts], attempts,
        seen["visits"], seen["longest_wait_s"],
    )  # fmt: skip


def _has_read_all(status: dict, sent: int, lost_before: int) -> bool:
    """Whether each honest reader has read, or counted as lost, every packet."""
    honest = _honest(status)
    lost = _lost_for_all(status) - lost_before
    settled = [one["delivered"] + one["dropped"]["overrun"] + lost for one in honest]
    return len(honest) == READERS and min(settled) >= sent


def _honest(status: dict) -> list[dict]:
    return [one for one in status["readers"] if one["name"] == "honest"]


def _lost_for_all(status: dict) -> int:
    """Packets that no reader can have."""
    lanes = [lane for source in status["sources"] for lane in source["lanes"]]
    return sum(sum(part["dropped"].values()) for part in [*status["sources"], *lanes])


def _missing(text: str) -> int:
    found = re.findall(r"stamps: ([\d,]+) packets from number (\d+), ([\d,]+) missing", text)
    if not found:
        raise ToolError(f"no stamps in what a reader wrote: {text.strip()[-300:]}")
    return int(found[-1][2].replace(",", ""))


def _attempts(attackers: Tool) -> int:
    """How often the attackers tried. Attackers that break are no attack: that is an error."""
    text = attackers.output()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"type": "attack"')]
    if attackers.process.returncode != 0 or not lines or not all(one.get("tried") for one in lines):
        raise ToolError(f"the attackers broke: {text.strip()[-1500:]}")
    if VERBOSE:
        for one in lines:
            print(f"  {one['attack']:15} {one['tried']:>9,} {one['refused']} {one['errors']}", flush=True)
    return sum(one["tried"] for one in lines)


def checks(phase: Phase) -> list[tuple[str, str, bool]]:
    """What must hold in a phase."""
    reports, plan = phase.reports, phase.plan
    lost = [report.lost for report in reports]
    explained = [report.delivered + report.lost == phase.sent for report in reports]
    found = [
        (f"{plan.name}: counters balanced", "", all(one.balanced for one in reports)),
        (f"{plan.name}: every packet explained", "", all(explained)),
        (
            f"{plan.name}: numbers in the packets agree",
            ", ".join(f"{one:,}" for one in phase.missing),
            all(missing <= report.lost + phase.refused for missing, report in zip(phase.missing, reports)),
        ),
    ]
    found.append((f"{plan.name}: others attach", f"{phase.visits:,} times", phase.visits > 0))
    if plan.lossless:
        found.append((f"{plan.name}: honest readers lost 0", ", ".join(map(str, lost)), not any(lost)))
    return found


def show(phases: list[Phase], left: list[tuple[str, str, bool]]) -> int:
    """Prints both tables; gives the exit status."""
    rows = [
        [
            one.plan.name, f"{one.sent:,}", f"{one.sent / one.elapsed_ns * 1e3:.2f}", f"{one.attempts:,}",
            f"{one.longest_wait_s:.2f}",
            *(f"{report.lost:,}" for report in one.reports),
        ]
        for one in phases
    ]  # fmt: skip
    heads = ["", "sent", "Mpps", "attacks", "longest s to attach", *(f"lost by honest reader {n + 1}" for n in range(READERS))]
    print(grid([heads, *rows]) + "\n", flush=True)
    found = [check for phase in phases for check in checks(phase)] + left
    rows = [[name, text, "held" if held else "FAILED"] for name, text, held in found]
    print(grid([["", "measured", "check"], *rows]), flush=True)
    return 0 if all(held for _, _, held in found) else 1


def inside(work: Callable[[], int]) -> int:
    """Runs `work` and says why it failed."""
    try:
        return work()
    except (ToolError, parse.ReportError, OSError) as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 1


def measure(ringtap: Path, plans: list[Plan], pool: str, seed: int) -> int:
    """All phases with one hub, inside the sandbox; gives the exit status."""
    sandbox.make_veth()
    tool.READY_SECONDS = tool.END_SECONDS = PATIENCE_SECONDS
    setup = Setup(ringtap, pool)
    phases = []
    with setup.hub as hub:
        hub.wait_ready("ringtap: hub of", "xdp")
        # Threads, buffers and the pages of the pool that appear with the first reader.
        run(setup, Plan("warm-up", "10kpps", 1, [], False), seed)
        before = Belongings.of(hub.process.pid)
        for plan in plans:
            print(f"chaos: {plan.name}: {plan.seconds:g} s at {plan.rate}", flush=True)
            phases.append(run(setup, plan, seed))
        pid = hub.process.pid
        wait_until("all readers have left", lambda: not setup.status()["readers"], [hub])
        try:
            wait_until("the hub has what it had", lambda: Belongings.of(pid).within(before), [hub])
        except ToolError:
            pass
        after = Belongings.of(pid)
        logged = sum(path.stat().st_size for path in hub._files)
        hub.end()
    left = leftovers()
    return show(
        phases,
        [
            ("the hub lives", "", True),
            ("the hub's belongings", f"{_words(before)}, then {_words(after)}", after.within(before)),
            ("bytes that the hub logged", f"{logged:,}", logged < 4 << 20),
            ("left behind: nothing", ", ".join(left) or "nothing", not left),
        ],
    )


def _words(has: Belongings) -> str:
    return f"{has.descriptors} descriptors, {has.mappings} mappings, {has.memory_kib:,} KiB"


def plans(asked: argparse.Namespace) -> list[Plan]:
    """The phases that the command line asks for."""
    attacks = asked.attacks.split(",") if asked.attacks else list(ATTACKS)
    paced = [
        Plan(f"{asked.rate}, no attack", asked.rate, min(5.0, asked.seconds), [], True),
        Plan(f"{asked.rate}, attacks", asked.rate, asked.seconds / (1 if asked.short else 2), attacks, True),
    ]
    full = [
        Plan("full rate, no attack", "max", 5, [], False),
        Plan("full rate, attacks", "max", asked.seconds / 2, attacks, False),
    ]
    return paced if asked.short else paced + full


def main(words: list[str]) -> int:
    """Runs what the command line asks for; gives the exit status."""
    parser = argparse.ArgumentParser(prog="ringtap-lab chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300, help="of attacks, in all (300)")
    parser.add_argument("--rate", default="300kpps", help="paced rate: nothing may be lost (300kpps)")
    parser.add_argument("--pool", default="128MiB", help="size of the pool (128MiB)")
    parser.add_argument("--attacks", default="", help="only these, with commas (all)")
    parser.add_argument("--short", action="store_true", help="the paced rate only")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="order of the attacks")
    parser.add_argument("--ringtap", type=Path, default=root.ringtap())
    asked = parser.parse_args(words)
    unknown = set(filter(None, asked.attacks.split(","))) - set(ATTACKS)
    if unknown:
        parser.error(f"no such attack: {', '.join(sorted(unknown))}; there are {', '.join(ATTACKS)}")
    ringtap = asked.ringtap.resolve()
    if why := unable("ringtap-lab chaos", "chaos", [ringtap]):
        print(f"chaos: {why}", file=sys.stderr)
        return 2
    print(f"chaos: seed {asked.seed}", flush=True)
    work = lambda: measure(ringtap, plans(asked), asked.pool, asked.seed)
    return sandbox.run_inside(lambda: inside(work))
