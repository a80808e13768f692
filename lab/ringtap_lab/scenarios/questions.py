# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenarios `parquet`, `index`, `find` and `record-index`: what questions of recordings cost.

- parquet: MB/s of a capture file, as columns in Parquet beside `ringtap count -r` and `tshark -T fields`.
- index: GB of capture files that one core indexes in a second, and the size of the indexes.
- find: seconds to find one flow in a folder on disk with cold caches, beside tcpdump, which reads all files; and the
  same while the programs are in the cache, and only recordings and indexes are not.
- record-index: highest rate without loss into a file on a tmpfs, with and without an index.

All files hold the lab's mix of flows. Each program runs on one core, started by the same command line as a user's.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ringtap_lab.manager import sandbox
from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.search import STEPS
from ringtap_lab.scenarios import figures, mix, parse, shunting, tables, turns
from ringtap_lab.scenarios.contenders import TASKSET, Contender
from ringtap_lab.scenarios.run import Run
from ringtap_lab.scenarios.tool import ToolError

#: Flows of a file of 140 MB, and of the one that tshark reads.
FLOWS, FEW_FLOWS = 8000, 1000
TIMEOUT_SECONDS = 600
#: The flow that is looked for: in the middle of this share of the files.
SOUGHT = 0.6

_FIELDS = "frame.time_epoch frame.len ip.src ip.dst ip.proto tcp.srcport tcp.dstport udp.srcport udp.dstport tcp.flags"
COUNT = Contender("ringtap count", TASKSET + "{ringtap} count --quiet --json -r {file}", parse.ringtap, "nothing")
PARQUET = Contender(
    "ringtap packets -o parquet",
    TASKSET + "{ringtap} packets --json -r {file} -o parquet -w {scratch}/parquet", parse.ringtap, "nothing",
)  # fmt: skip
TSHARK = Contender(
    "tshark -T fields",
    TASKSET + "tshark -n -r {file} -T fields " + " ".join(f"-e {one}" for one in _FIELDS.split()),
    parse.ringtap, "nothing", note="a smaller file",
)  # fmt: skip
INDEX = Contender("ringtap index", TASKSET + "{ringtap} index --json {file}", parse.ringtap, "nothing")
FIND = Contender(
    "ringtap find", TASKSET + "{ringtap} find --quiet -r {file} '{filter}'", parse.ringtap, "nothing",
)  # fmt: skip
TCPDUMP = Contender(
    "tcpdump -r", TASKSET + "sh -c 'for file in {file}/*.pcap; do tcpdump -n -q -r $file \"{filter}\"; done'",
    parse.ringtap, "nothing", note="each file in turn",
)  # fmt: skip
WARM = ", programs cached"
WARM_FIND, WARM_TCPDUMP = (replace(one, name=one.name + WARM) for one in (FIND, TCPDUMP))
RECORD, RECORD_INDEX = "ringtap record (tap)", "ringtap record --index (tap)"


def _done(run: Run, one: Contender, **places: object) -> tuple[str, float, float]:
    """Runs a program; gives its output, and the seconds that it took and that it used of processors."""
    command = run.programs.fill(one.command, **places)
    used, begun = os.times(), time.monotonic()
    done = subprocess.run(
        shlex.split(command), capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
    )
    seconds, now = time.monotonic() - begun, os.times()
    if done.returncode != 0:
        raise ToolError(f"{command}: exit code {done.returncode}: {done.stderr.strip()[-600:]}")
    processor = now.children_user + now.children_system - used.children_user - used.children_system
    return done.stdout + "\n" + done.stderr, seconds, processor


def parquet_seconds(run: Run) -> float:
    """About how long it takes."""
    return 10 + 8 * run.settings.crowd_rounds


def parquet(run: Run) -> dict:
    """Gives the MB/s of each program."""
    files = {}
    for one, flows in ((COUNT, 4 * FLOWS), (TSHARK, FEW_FLOWS)):
        file = sandbox.SCRATCH / f"{flows}.pcap"
        files[one.name] = (file, mix.make(file, flows).packets)
    files[PARQUET.name] = files[COUNT.name]
    found = run.by_turns(
        run.settings.crowd_rounds, [COUNT, PARQUET, TSHARK], lambda one: _columns(run, one, *files[one.name]),
        lambda name, row: f"parquet  {name} {row['mb_per_s']:9.2f} MB/s of pcap", ("mb_per_s",),
    )  # fmt: skip
    for file, _ in files.values():
        file.unlink(missing_ok=True)
    return found


def _columns(run: Run, one: Contender, file: Path, packets: int) -> dict:
    text, seconds, _ = _done(run, one, file=file)
    problems = []
    if one is TSHARK:
        told = sum(line[:1].isdigit() for line in text.splitlines())
    else:
        told = parse.ringtap(text).delivered
    if one is PARQUET:
        told = min(told, _rows(run, sandbox.SCRATCH / "parquet"))
        shutil.rmtree(sandbox.SCRATCH / "parquet")
    if told != packets:
        problems.append(f"{told} packets of {packets}")
    return {"mb_per_s": file.stat().st_size / seconds / 1e6, "problems": problems, "output": text[-400:]}


def _rows(run: Run, folder: Path) -> int:
    """Rows of Parquet files, as pyarrow reads them."""
    program = f"import pyarrow.dataset as d; print(d.dataset({str(folder)!r}, format='parquet').count_rows())"
    command = [str(run.programs.python), "-c", program]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def index_seconds(run: Run) -> float:
    """About how long it takes."""
    return 10 + 4 * run.settings.crowd_rounds


def index(run: Run) -> dict:
    """Gives the GB that one core indexes in a second, and the size of the indexes."""
    folder = sandbox.SCRATCH / "foreign"
    folder.mkdir()
    made = [mix.make(folder / f"{number}.pcap", FLOWS, number, number * FLOWS) for number in range(4)]
    found = run.by_turns(
        run.settings.crowd_rounds, [INDEX], lambda one: _index(run, one, folder, sum(it.packets for it in made)),
        lambda name, row: f"index  {name} {row['gb_per_s']:.3f} GB/s of a core, index"
        f" {row['index_percent']:.2f} % of the data", ("gb_per_s", "index_percent"),
    )  # fmt: skip
    shutil.rmtree(folder)
    return found


def _index(run: Run, one: Contender, folder: Path, packets: int) -> dict:
    text, _, processor = _done(run, one, file=folder)
    told = parse.last_json(text, "index_bytes", one.name)
    indexes, captures = (sum(it.stat().st_size for it in folder.glob(end)) for end in ("*.rtindex", "*.pcap"))
    for file in folder.glob("*.rtindex"):
        file.unlink()
    problems = []
    if told["packets"] != packets or told["index_bytes"] != indexes:
        problems.append(f"it tells of {told}, but {packets} packets and {indexes} bytes of indexes are there")
    return {
        "gb_per_s": captures / processor / 1e9, "index_percent": 100 * indexes / captures,
        "problems": problems, "output": text,
    }  # fmt: skip


def find_seconds(run: Run) -> float:
    """About how long it takes."""
    return run.settings.find_gb * (15 + 8 * run.settings.crowd_rounds)


def find(run: Run) -> dict:
    """Gives the seconds of each program in the same folder, whose files no cache has."""
    folder, few = (run.programs.ringtap.parent / f"bench-recordings{name}" for name in ("", "-few"))
    for one in (folder, few):
        shutil.rmtree(one, ignore_errors=True)
        one.mkdir()
    try:
        mix.make(few / "few.pcap", FEW_FLOWS)
        flow = _recordings(folder, run.settings.find_gb)
        size = sum(file.stat().st_size for file in folder.iterdir())
        for one in (folder, few):
            _done(run, INDEX, file=one)
        os.sync()
        client, port = 0x0A000000 + flow // 4, 1024 + flow % 60_000
        host = ".".join(str(byte) for byte in client.to_bytes(4, "big"))
        rows = run.by_turns(
            run.settings.crowd_rounds, [FIND, TCPDUMP, WARM_FIND, WARM_TCPDUMP],
            lambda one: _find(run, one, folder, few, f"host {host} and port {port}"),
            lambda name, row: f"find  {name} {row['seconds']:9.4f} s, {row['packets']} packets", ("seconds",),
        )  # fmt: skip
    finally:
        for one in (folder, few):
            shutil.rmtree(one)
    told = {row["packets"] for entry in rows.values() for row in entry["rounds"]}
    if len(told) != 1 or 0 in told:
        run.problem(f"find: the programs found {sorted(told)} packets")
    return {"gb": size / 1e9, "contenders": rows}


def _recordings(folder: Path, gigabytes: float) -> int:
    """Writes capture files of this size together; gives a flow of one of them."""
    written, number = 0, 0
    while written < gigabytes * 1e9:
        file = folder / f"{number:04}.pcap"
        mix.make(file, FLOWS, number, number * FLOWS, number * mix.SECONDS)
        written, number = written + file.stat().st_size, number + 1
    return math.floor(number * SOUGHT) * FLOWS + FLOWS // 2


def forget(folder: Path) -> None:
    """Takes the files of a folder out of the cache, and nothing else."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _find(run: Run, one: Contender, folder: Path, few: Path, filter: str) -> dict:
    if one in (WARM_FIND, WARM_TCPDUMP):
        # The other pair emptied the cache of all.
        _done(run, one, file=few, filter=filter)
        forget(folder)
    else:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    text, seconds, processor = _done(run, one, file=folder, filter=filter)
    packets = sum(" > " in line for line in text.splitlines())
    return {"seconds": seconds, "cpu_seconds": processor, "packets": packets, "problems": [], "output": text[-400:]}


def record_seconds(run: Run) -> float:
    """About how long it takes."""
    return 5 + (2 * STEPS + 6 * (run.settings.record_rounds - 1)) * 4


def record(run: Run) -> dict:
    """Gives the lossless rate of every round of both recorders."""
    file = sandbox.SCRATCH / "mix.pcap"
    made = mix.make(file, 2 * FLOWS)
    cases = {
        name: Case(name, "lossless", file=str(file), seconds=shunting.LONGEST_S) for name in (RECORD, RECORD_INDEX)
    }
    rounds = run.settings.record_rounds
    measured = turns.measure(run, "record-index", list(cases.values()), rounds, turns.FROM_FILE)
    size = file.stat().st_size
    file.unlink()
    return {"size": size / made.packets, "contenders": {
        name: turns.entry(run, turns.KNOWN[name], measured[case.key], ("lossless_pps",))
        for name, case in cases.items()
    }}  # fmt: skip


def table(key: str, head: str, digits: int = 2) -> Callable[[dict], str]:
    """A table of one figure of each program."""

    def text(found: dict) -> str:
        rows = found.get("contenders", found)
        title = f"{found['gb']:.1f} GB of recordings" if "gb" in found else ""
        cells = [[name, tables.figure(entry["summary"].get(key), digits)] for name, entry in rows.items()]
        return tables.table([title, head], cells)

    return text


def index_table(found: dict) -> str:
    """Speed and size."""
    keys = (("gb_per_s", 3), ("index_percent", 2))
    rows = [
        [name, *(tables.figure(entry["summary"].get(key), digits) for key, digits in keys)]
        for name, entry in found.items()
    ]
    return tables.table(["", "GB/s of a core", "size of the index, % of the data"], rows)


def ratio(scenario: str, above: str, below: str, key: str) -> Callable[[dict], float | None]:
    """Median over the rounds: a figure of one program divided by that of another."""

    def figure(result: dict) -> float | None:
        found = result.get(scenario, {})
        found = found.get("contenders", found)
        pair = [
            [row for row in found.get(name, {}).get("rounds", []) if not row.get("problems")]
            for name in (above, below)
        ]
        ratios = figures.ratios(*pair, key)
        return figures.spread(ratios)["median"] if ratios else None

    return figure


def beside_find(result: dict) -> str:
    """The same ratio while the programs are cached, and both times."""
    found = ratio("find", WARM_FIND.name, WARM_TCPDUMP.name, "seconds")(result)
    if found is None:
        return ""
    rows = result["find"]["contenders"]
    ours, theirs = (rows[one.name]["summary"]["seconds"]["median"] for one in (WARM_FIND, WARM_TCPDUMP))
    return f"1/{1 / found:.0f} while the programs are cached, {ours * 1e3:.1f} ms and {theirs:.2f} s"


def of_index(key: str) -> Callable[[dict], float | None]:
    """Median of a figure of the indexing."""
    return lambda result: (
        result.get("index", {}).get(INDEX.name, {}).get("summary", {}).get(key, {}).get("median")
    )
