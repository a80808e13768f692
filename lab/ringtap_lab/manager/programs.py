# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs that contenders need: ours, which `make` built, and the lab's own readers in C."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ringtap_lab import root

SOURCES = Path(__file__).resolve().parents[1] / "contenders"
#: The lab's readers in C, and the libraries that they need.
READERS = {"adviser": "-lpcap", "packet_reader": "-lpcap", "pcap_echo": "-lpcap", "pcap_latency": "-lpcap",
           "pcap_open": "-lpcap", "pcap_zip": "-lpcap -lz", "xsk_reader": "-lxdp"}  # fmt: skip
#: In Rust: `make bench` builds it.
NETRING = "lab/netring/release/netring_reader"
#: Examples of our own that measure, as `make bench` builds them.
EXAMPLES = {"floor": "xdp_floor", "pool_bench": "pool_bench", "sim_bench": "sim_bench", "flow_rates": "flow_rates",
            "rule_rates": "rule_rates"}  # fmt: skip


def here(ringtap: Path | None, say: Callable[[str], None]) -> dict[str, str]:
    """Paths of programs on this machine, by the name in a contender's command."""
    # Programs of the lab run in folders of their own.
    ours = (ringtap or root.ringtap()).resolve()
    # A Python with our package and those that it is compared with; `scripts/python-package bench` makes it.
    bench_python = ours.parents[1] / "python-bench/bin/python"
    found = {"ringtap": ours, "python": Path(sys.executable), "bench_python": bench_python}
    found |= {name: ours.parent / "examples" / example for name, example in EXAMPLES.items()}
    found |= {name: _compiled(name, libraries.split(), say) for name, libraries in READERS.items()}
    found["netring_reader"] = root.target() / NETRING
    return {name: str(path) for name, path in found.items()}


def _compiled(name: str, libraries: list[str], say: Callable[[str], None]) -> Path:
    """A reader, compiled when its source is newer; without a compiler its contenders are missing."""
    source, program = SOURCES / f"{name}.c", root.target() / "lab" / name
    newest = max(one.stat().st_mtime for one in (source, SOURCES / "headers.h"))
    if program.exists() and program.stat().st_mtime >= newest:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-O2", "-Wall", "-Wextra", "-o", str(program), str(source), *libraries]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.SubprocessError) as error:
        say(f"no {name}: {' '.join(command)}: {getattr(error, 'stderr', '') or error}")
    return program
