# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the neighbours of a reader cost the hub's thread and the reader: a run with them, a run without.

A reader of root attaches first. Then four ordinary users attack, by default with 60 subscriptions each
that take nothing. Runs with and without them alternate, each with a hub of its own and default settings.

Exit status: 0 if every check held, 1 if one failed, 2 if nothing could be run.

Invariants
- The sender's counter in the kernel says what was sent.
- Time of the hub's thread is the kernel's count of its processor time while packets were sent.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ringtap_lab import root
from ringtap_lab.attack import attacks
from ringtap_lab.attack.attacks import ATTACKS
from ringtap_lab.attack.on_pool import CROWD
from ringtap_lab.formatters.tables import grid
from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import chaos, parse, tool
from ringtap_lab.scenarios.preflight import unable
from ringtap_lab.scenarios.tool import Tool, ToolError

USERS = ["nobody", "daemon", "bin", "sys"]
CONFIG = """
[[source]]
device = "tap:{device}?exclusive&direction=in{pool}"
[[group]]
name = "all"
users = {users}
"""
#: Neighbours that are no attack: none at all, or processes that only take processor time.
CONTROLS = ["none", "busy"]


@dataclass(frozen=True)
class Outcome:
    """What came of one run."""

    sent: int
    elapsed_ns: int
    #: Processor time of the hub's thread.
    hub_ns: int
    lost: int
    longest_step_us: int

    @property
    def percent(self) -> float:
        """Part of the time in which the hub's thread ran."""
        return self.hub_ns / self.elapsed_ns * 100

    @property
    def ms_per_million(self) -> float:
        """Milliseconds of the hub's thread for a million packets."""
        return self.hub_ns / self.sent


class Setup(chaos.Setup):
    """A hub with default settings, its reader and their neighbours."""

    def __init__(self, ringtap: Path, pool: str) -> None:
        self.ringtap = chaos._visible(ringtap)
        self.socket = sandbox.SCRATCH / "hub.sock"
        config = sandbox.SCRATCH / "hub.toml"
        size = f"&pool={pool}" if pool else ""
        config.write_text(CONFIG.format(device=sandbox.CAPTURED, pool=size, users=json.dumps(USERS)))
        self.hub = Tool(f"{self.ringtap} hub -c {config} --socket {self.socket}")

    def first(self) -> Tool:
        """The reader that attaches first."""
        device = f"hub:all?socket={self.socket}"
        return Tool(f"{self.ringtap} count --quiet --json --stamps --name honest -i {device}")

    def neighbour(self, kind: str, user: str, seconds: float) -> Tool:
        """What one user runs."""
        if kind == "busy":
            return Tool(f"setpriv --reuid={user} --clear-groups sh -c 'while :; do :; done'")
        script = attacks.__file__
        return Tool(
            f"{sys.executable} {script} {kind} --socket {self.socket} --seconds {seconds:g} --user {user}"
        )


def hub_thread_ns(pid: int) -> int:
    """Processor time of the hub's thread so far."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "hub":
            return int((task / "schedstat").read_text().split()[0])
    raise ToolError("the hub has no thread of this name")


def measure(ringtap: Path, kind: str, asked: argparse.Namespace, rate: str) -> Outcome:
    """One run with these neighbours."""
    setup = Setup(ringtap, asked.pool)
    with ExitStack() as stack:
        hub = stack.enter_context(setup.hub)
        hub.wait_ready("ringtap: hub of", "xdp")
        first = stack.enter_context(setup.first())
        chaos.wait_until("the reader attaches", lambda: len(setup.status()["readers"]) == 1, [hub, first])
        patience = asked.seconds + chaos.PATIENCE_SECONDS
        users = USERS if kind != "none" else []
        neighbours = [stack.enter_context(setup.neighbour(kind, user, patience)) for user in users]
        each = {"none": 0, "busy": 0, "idle_crowd": CROWD}.get(kind, 1)
        expected = 1 + each * len(users)
        attached = lambda: len(setup.status()["readers"]) >= expected
        chaos.wait_until(f"{expected} readers attach", attached, [hub, first, *neighbours])
        lost_before = chaos._lost_for_all(setup.status())
        before = hub_thread_ns(hub.process.pid)
        plan = chaos.Plan(kind, rate, asked.seconds, [], True)
        sender = setup.sender(plan)
        said, errors = sender.communicate(timeout=patience)
        hub_ns = hub_thread_ns(hub.process.pid) - before
        if sender.returncode != 0:
            raise ToolError(f"the sender: {errors.strip()[-300:]}")
        sent, elapsed_ns = parse.sender(said)

        def settled() -> bool:
            one = honest(setup.status())
            lost = chaos._lost_for_all(setup.status()) - lost_before
            return one["delivered"] + one["dropped"]["overrun"] + lost >= sent

        chaos.wait_until("the reader has read all", settled, [hub, first])
        status = setup.status()
        lost = honest(status)["dropped"]["overrun"] + chaos._lost_for_all(status) - lost_before
    return Outcome(sent, elapsed_ns, hub_ns, lost, status.get("longest_step_us", 0))


def honest(status: dict) -> dict:
    """The reader that attached first."""
    return next(one for one in status["readers"] if one["name"] == "honest")


@dataclass(frozen=True)
class Comparison:
    """Runs without and with neighbours at one rate."""

    rate: str
    control: list[Outcome]
    attacked: list[Outcome]

    @property
    def ratio(self) -> float:
        """Processor time of the hub's thread for a packet, by that of the control."""
        return _median(self.attacked, "ms_per_million") / _median(self.control, "ms_per_million")

    @property
    def more_percent(self) -> float:
        """Percent of the time in which the hub's thread ran, beyond the control's."""
        return _median(self.attacked, "percent") - _median(self.control, "percent")

    def checks(self, max_ratio: float, max_percent: float) -> list[tuple[str, str, bool]]:
        """What must hold: a machine that others load loses a few packets by itself."""
        lost = [sum(one.lost for one in runs) for runs in (self.control, self.attacked)]
        spared = sum(one.sent for one in self.attacked) // 1000
        return [
            (f"{self.rate}: ratio of the hub's time", f"{self.ratio:.2f}", self.ratio <= max_ratio),
            (
                f"{self.rate}: more of the hub's time, %",
                f"{self.more_percent:.1f}",
                self.more_percent <= max_percent,
            ),
            (
                f"{self.rate}: lost by the reader",
                f"{lost[1]:,}, without neighbours {lost[0]:,}",
                lost[1] <= lost[0] + spared,
            ),
        ]


def _median(runs: list[Outcome], figure: str) -> float:
    return statistics.median(getattr(one, figure) for one in runs)


def run(ringtap: Path, asked: argparse.Namespace) -> int:
    """All runs, inside the sandbox; gives the exit status."""
    sandbox.make_veth()
    tool.READY_SECONDS = tool.END_SECONDS = chaos.PATIENCE_SECONDS
    rows, found = [], []
    for rate in asked.rates.split(","):
        kinds = [asked.control, asked.attack]
        of_kind: dict[str, list[Outcome]] = {kind: [] for kind in kinds}
        for turn in range(asked.rounds):
            # Neither is always the first of a round.
            for kind in kinds[:: 1 if turn % 2 == 0 else -1]:
                one = measure(ringtap, kind, asked, rate)
                of_kind[kind].append(one)
                rows.append(_row(rate, kind, one))
                print(f"neighbours: {' '.join(rows[-1])}", flush=True)
        compared = Comparison(rate, of_kind[asked.control], of_kind[asked.attack])
        found += compared.checks(asked.max_ratio, asked.max_percent)
    heads = ["rate", "neighbours", "sent", "Mpps", "hub's thread: ms per million", "% of the time"]
    print(grid([[*heads, "lost", "longest step, µs"], *rows]) + "\n")
    rows = [[name, text, "held" if held else "FAILED"] for name, text, held in found]
    print(grid([["", "measured", "check"], *rows]), flush=True)
    return 0 if all(held for _, _, held in found) else 1


def _row(rate: str, kind: str, one: Outcome) -> list[str]:
    return [
        rate, kind, f"{one.sent:,}", f"{one.sent / one.elapsed_ns * 1e3:.2f}",
        f"{one.ms_per_million:.1f}", f"{one.percent:.1f}", f"{one.lost:,}", f"{one.longest_step_us:,}",
    ]  # fmt: skip


def main(words: list[str]) -> int:
    """Runs what the command line asks for; gives the exit status."""
    parser = argparse.ArgumentParser(prog="ringtap-lab neighbours", description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default="1Mpps,4Mpps", help="with commas (1Mpps,4Mpps)")
    parser.add_argument("--seconds", type=float, default=5, help="of packets in each run (5)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind (3)")
    parser.add_argument("--attack", default="idle_crowd", choices=list(ATTACKS))
    parser.add_argument("--control", default="none", choices=[*CONTROLS, *ATTACKS])
    parser.add_argument("--pool", default="", help="size of the pool (the hub's default)")
    parser.add_argument("--max-ratio", type=float, default=float("inf"), help="check: ratio of the hub's time")
    parser.add_argument("--max-percent", type=float, default=float("inf"), help="check: more of the hub's time")
    parser.add_argument("--ringtap", type=Path, default=root.ringtap())
    asked = parser.parse_args(words)
    ringtap = asked.ringtap.resolve()
    if why := unable("ringtap-lab neighbours", "neighbours", [ringtap]):
        print(f"neighbours: {why}", file=sys.stderr)
        return 2
    return sandbox.run_inside(lambda: chaos.inside(lambda: run(ringtap, asked)))
