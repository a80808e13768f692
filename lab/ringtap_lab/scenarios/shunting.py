# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `shunting`: what rules for flows cost and save.

- Rules: the rate of a tap beside a million rules of which none matches; the rules set in a second, also through a hub.
- Elephants: a mix in which 5 % of the flows carry 80 % of the bytes; the lossless rate of a reader that
  compresses every packet, with and without a cut-off after 20 packets.
- Cut-off: the bytes that a recorder with `--cutoff 16KiB` writes of the same mix, against the sum computed here.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from ringtap_lab.manager import sandbox
from ringtap_lab.manager.battery import Case
from ringtap_lab.scenarios import figures, turns
from ringtap_lab.scenarios.crowd import HUB_COMMAND
from ringtap_lab.scenarios.mix import frame, write
from ringtap_lab.scenarios.pool import rounds as rounds_of_program
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import Tool, ToolError

RULES = 1_000_000
#: Rows of the table that are not rates.
RATIO, SET = "rules ÷ no rules", "millions of rules set in a second"
#: Flows of the mix: 5 % have 80 % of the packets, all of one size.
FLOWS, ELEPHANTS, MOUSE_PACKETS, ELEPHANT_PACKETS, PAYLOAD = 10_000, 500, 10, 760, 450
KEPT_PACKETS, KEPT_BYTES = 20, 16 << 10

ALL, CUT = "every packet", "20 packets of a flow"
READERS = {ALL: "tap exclusive", CUT: "tap exclusive, 20 packets of a flow"}
RECORDER = "ringtap record, 16 KiB of a flow"
#: Slow enough that a recorder on the other core loses nothing.
RECORD_PPS = 100_000
#: Rules that readers of a hub set, fewer than one of them may have, and how many readers set them together.
HUB_RULES, HUB_READERS = 120_000, (1, 8)
#: Longest that the file may take.
LONGEST_S = 100.0


def sizes() -> list[int]:
    """Packets of each flow."""
    return [ELEPHANT_PACKETS if flow < ELEPHANTS else MOUSE_PACKETS for flow in range(FLOWS)]


def make(file: Path) -> int:
    """Writes the mix in random order; gives the bytes of a packet."""
    order = [flow for flow, packets in enumerate(sizes()) for _ in range(packets)]
    random.Random(1).shuffle(order)
    header = (8 + PAYLOAD).to_bytes(2, "big") + bytes(2)
    packets = [frame(True, flow, 17, 443, header, PAYLOAD) for flow in range(FLOWS)]
    with file.open("wb", 1 << 20) as out:
        write(out, ((0.0, packets[flow]) for flow in order))
    return len(packets[0])


def kept(length: int) -> int:
    """Packets that begin within the kept bytes of their flow."""
    return sum(min(packets, -(-KEPT_BYTES // length)) for packets in sizes())


def seconds(run: Run) -> float:
    """About how long it takes."""
    return 90 + run.settings.record_rounds * 2 * 4 * 8


def run(run: Run) -> dict:
    """Gives the rates beside rules, the lossless rates of both readers, and the recorder's bytes."""
    file = sandbox.SCRATCH / "mix.pcap"
    length = make(file)
    found = {"size": length, "rules": _rules(run), "by_hub": _by_hub(run), "elephants": _elephants(run, file)}
    found["recorder"] = _recorder(run, file, length)
    return found


def _recorder(run: Run, file: Path, length: int) -> dict:
    case = Case(RECORDER, rate=f"{RECORD_PPS}pps", file=str(file), seconds=LONGEST_S)
    rows = turns.measure(run, "shunting", [case], 1, turns.FROM_FILE)[case.key]
    if not rows:
        return {}
    wanted, row = kept(length), rows[0]
    if row["delivered"] != wanted:
        run.problem(f"shunting: the recorder took {row['delivered']} packets, {wanted} are right")
    # A record of pcap has 16 bytes before the packet, the file has 24.
    row["wanted_file_bytes"] = 24 + wanted * (16 + length)
    told = f"{row['file_bytes']:,} bytes, {row['wanted_file_bytes']:,} computed"
    if row["file_bytes"] != row["wanted_file_bytes"]:
        run.problem(f"shunting: the recorder wrote {told}")
    run.say(f"shunting  recorder: {told}")
    return {**turns.entry(run, turns.KNOWN[RECORDER], rows, ()), **row}


def _rules(run: Run) -> dict:
    program = run.programs.ringtap.parent / "examples" / "flow_rates"
    command = f"{program} {sandbox.CAPTURED} {sandbox.SENDER} {RULES}"

    def read(text: str) -> dict:
        line = json.loads(text)
        rates = {
            name: {"summary": {"mpps": figures.spread(rate / 1e6 for rate in line[key])}}
            for name, key in (
                ("no rules", "without_pps"), (f"{RULES:,} rules", "with_rules_pps"),
                ("a cut-off of all", "cut_off_pps"),
            )
        }  # fmt: skip
        set_mpps = figures.spread(rate / 1e6 for rate in line["rules_per_s"])
        ratio = figures.spread(
            beside / without for without, beside in zip(line["without_pps"], line["with_rules_pps"])
        )
        return rates | {
            RATIO: {"summary": {"mpps": ratio}},
            SET: {"summary": {"mpps": set_mpps}},
        }

    return rounds_of_program(run, "shunting", command, read)


def _by_hub(run: Run) -> dict:
    """Millions of rules that readers of a hub set in a second, alone and together."""
    found = {}
    for readers in HUB_READERS:
        command = (
            f"{run.programs.ringtap.parent}/examples/rule_rates {sandbox.SCRATCH}/hub.sock all {readers} {HUB_RULES}"
        )

        def read(text: str) -> dict:
            rates = [json.loads(line)["rules_per_s"] / 1e6 for line in text.splitlines()]
            return {f"readers: {readers}": {"summary": {"mpps": figures.spread(rates)}}}  # noqa: B023

        try:
            with Tool(run.programs.fill(HUB_COMMAND)) as hub:
                hub.wait_ready("ringtap: hub of", "xdp")
                found |= rounds_of_program(run, "shunting", command, read)
                hub.end()
        except ToolError as error:
            run.problem(f"shunting: {error}")
    return found


def _elephants(run: Run, file: Path) -> dict:
    cases = {
        name: Case(one, "lossless", load="zlib:1", file=str(file), seconds=LONGEST_S)
        for name, one in READERS.items()
    }
    measured = turns.measure(run, "shunting", list(cases.values()), run.settings.record_rounds, turns.FROM_FILE)
    return {
        name: turns.entry(run, turns.KNOWN[case.contender], measured[case.key], ("lossless_pps",))
        for name, case in cases.items()
    }


def _rule_figure(result: dict, name: str) -> float | None:
    row = result.get("shunting", {}).get("rules", {}).get(name)
    return row["summary"]["mpps"]["median"] if row else None


def against_no_rules(result: dict) -> float | None:
    """Median over the rounds: rate beside the rules, divided by the rate without."""
    return _rule_figure(result, RATIO)


def set_in_a_second(result: dict) -> float | None:
    """Millions of rules that were set in a second, median over the rounds."""
    return _rule_figure(result, SET)


def by_hub(readers: int) -> Callable[[dict], float | None]:
    """Millions of rules that so many readers of a hub set in a second together."""

    def figure(result: dict) -> float | None:
        row = result.get("shunting", {}).get("by_hub", {}).get(f"readers: {readers}")
        return row["summary"]["mpps"]["median"] if row else None

    return figure


def elephants_ratio(result: dict) -> float | None:
    """Median over the rounds: lossless rate with the cut-off, divided by the rate without."""
    rows = result.get("shunting", {}).get("elephants", {})
    pair = [rows.get(name, {}).get("rounds", []) for name in (CUT, ALL)]
    found = figures.ratios(*pair, "lossless_pps")
    return figures.spread(found)["median"] if found else None


def written(result: dict) -> float | None:
    """1 if the recorder wrote the bytes that were computed, else 0."""
    row = result.get("shunting", {}).get("recorder")
    if not row:
        return None
    return float(row["file_bytes"] == row["wanted_file_bytes"])
