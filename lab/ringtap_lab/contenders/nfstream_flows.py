# SPDX-License-Identifier: MIT OR Apache-2.0
"""Meters flows of an interface or a file with nfstream, and prints their sums; SIGINT ends it.

usage: nfstream_flows.py INTERFACE|FILE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

#: Where `scripts/prepare bench` puts it.
sys.path.append(str(Path.home() / ".cache/ringtap/python"))

from nfstream import NFStreamer


def main(source: str) -> None:
    streamer = NFStreamer(
        source=source, idle_timeout=7200, active_timeout=86400, accounting_mode=1,
        n_dissections=0, statistical_analysis=False, n_meters=1,
    )  # fmt: skip
    records = packets = size = 0
    print("ready", file=sys.stderr, flush=True)
    for flow in streamer:
        records += 1
        packets += flow.bidirectional_packets
        size += flow.bidirectional_bytes
    print(json.dumps({"records": records, "packets": packets, "bytes": size}))


if __name__ == "__main__":
    main(sys.argv[1])
