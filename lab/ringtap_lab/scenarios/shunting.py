# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenario `shunting`: what rules for flows cost and save.

- Rules: the rate of a tap beside a million rules of which none matches, and the rules set in a second.
- Elephants: a mix in which 5 % of the flows carry 80 % of the bytes; the lossless rate of a reader that
  compresses every packet, with and without a cut-off after 20 packets.
- Cut-off: the bytes that a recorder with `--cutoff 16KiB` writes of the same mix, against the sum computed here.
"""

from __future__ import annotations

import json
import random
import shlex
import subprocess
from pathlib import Path

from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios import figures, parse, trial
from ringtap_lab.scenarios.contenders import SENDER_CPU, Contender
from ringtap_lab.scenarios.lossless import rounds_of
from ringtap_lab.scenarios.mix import frame, write
from ringtap_lab.scenarios.pool import rounds as rounds_of_program
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import ToolError

RULES = 1_000_000
#: Rows of the table that are not rates.
RATIO, SET = "rules ÷ no rules", "millions of rules set in a second"
#: Flows of the mix: 5 % have 80 % of the packets, all of one size.
FLOWS, ELEPHANTS, MOUSE_PACKETS, ELEPHANT_PACKETS, PAYLOAD = 10_000, 500, 10, 760, 450
KEPT_PACKETS, KEPT_BYTES = 20, 16 << 10

_READER = (
    "{ringtap} count --quiet --json --cpu reader={reader_cpu},capture={reader_cpu} --work zlib:1"
    " -i 'tap:{dev}?exclusive&pool={ring_mib}MiB'"
)
ALL = Contender("every packet", _READER, parse.ringtap, "xdp", note="--work zlib:1")
CUT = Contender(
    "20 packets of a flow", _READER + f" --cutoff '{KEPT_PACKETS} packets'", parse.ringtap, "xdp"
)
RECORDER = Contender(
    "recorder",
    "{ringtap} record --quiet --json -w {scratch}/heads.pcap -i 'tap:{dev}?exclusive&pool=256MiB'"
    f" --cutoff {KEPT_BYTES}",
    parse.ringtap, "xdp", writes="heads.pcap",
)  # fmt: skip
#: Slow enough that a recorder on the other core loses nothing.
RECORD_PPS = 100_000


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
    found = {"size": length, "rules": _rules(run), "elephants": _elephants(run, file), "recorder": {}}
    row = run.attempt(RECORDER, lambda: replayed(run, RECORDER, file, f"{RECORD_PPS}pps"))
    if row is not None:
        wanted = kept(length)
        if row["delivered"] != wanted:
            run.problem(f"shunting: the recorder took {row['delivered']} packets, {wanted} are right")
        # A record of pcap has 16 bytes before the packet, the file has 24.
        row["wanted_file_bytes"] = 24 + wanted * (16 + length)
        if row["file_bytes"] != row["wanted_file_bytes"]:
            run.problem(
                f"shunting: the recorder wrote {row['file_bytes']} bytes, {row['wanted_file_bytes']}"
                " are right"
            )
        run.say(f"shunting  recorder: {row['file_bytes']:,} bytes, {row['wanted_file_bytes']:,} computed")
        found["recorder"] = {**run.entry(RECORDER), **row}
    return found


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


def _elephants(run: Run, file: Path) -> dict:
    # Of what was not withheld, so that the next rate is near the answer for both readers.
    def delivered_pps(row: dict) -> float:
        return row["offered_mpps"] * 1e6 * (1 - row["lost"] / (row["offered"] - row["shunted"]))

    return rounds_of(
        run, "shunting", [ALL, CUT], lambda one, rate: replayed(run, one, file, rate), delivered_pps
    )


def replayed(run: Run, one: Contender, file: Path, rate: str) -> dict:
    """One measurement: the file at this rate, once."""
    return trial.measure_with(run.programs, one, lambda: _replay(run, file, rate), 0)


def _replay(run: Run, file: Path, rate: str) -> trial.Sent:
    command = run.programs.fill(
        f"{{ringtap}} send --quiet --json --cpu {SENDER_CPU} -i {sandbox.SENDER} -r {file} --rate {rate}"
    )
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise ToolError(f"{command}: exit code {done.returncode}: {done.stderr.strip()[-600:]}")
    return trial.Sent(*parse.sender(done.stdout))


def _rule_figure(result: dict, name: str) -> float | None:
    row = result.get("shunting", {}).get("rules", {}).get(name)
    return row["summary"]["mpps"]["median"] if row else None


def against_no_rules(result: dict) -> float | None:
    """Median over the rounds: rate beside the rules, divided by the rate without."""
    return _rule_figure(result, RATIO)


def set_in_a_second(result: dict) -> float | None:
    """Millions of rules that were set in a second, median over the rounds."""
    return _rule_figure(result, SET)


def elephants_ratio(result: dict) -> float | None:
    """Median over the rounds: lossless rate with the cut-off, divided by the rate without."""
    rows = result.get("shunting", {}).get("elephants", {})
    pair = [rows.get(one.name, {}).get("rounds", []) for one in (CUT, ALL)]
    found = figures.ratios(*pair, "lossless_pps")
    return figures.spread(found)["median"] if found else None


def written(result: dict) -> float | None:
    """1 if the recorder wrote the bytes that were computed, else 0."""
    row = result.get("shunting", {}).get("recorder")
    if not row:
        return None
    return float(row["file_bytes"] == row["wanted_file_bytes"])
