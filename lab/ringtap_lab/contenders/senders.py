# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sends from several processors: `senders.py DEVICE CPUS PACKETS-PER-SECOND -- COMMAND...` starts one sender on each,
each at its part of the rate (`EACH` in the command), through a queue of its own, and prints what all of them sent."""

from __future__ import annotations

import json
import subprocess
import sys


def main(words: list[str]) -> int:
    """Gives the exit status."""
    device, listed, rate, _, *command = words
    cpus = listed.split(",")
    queues(device, len(cpus))
    try:
        return send(cpus, rate, command)
    finally:
        # A veth whose peer sends from more queues than it has refuses an XDP program.
        queues(device, 1)


def queues(device: str, number: int) -> None:
    """Gives the device so many."""
    subprocess.run(["ethtool", "-L", device, "rx", str(number), "tx", str(number)], check=True)


def send(cpus: list[str], rate: str, command: list[str]) -> int:
    """Runs all senders and prints what they sent."""
    each = f"{int(rate.removesuffix('pps')) // len(cpus)}pps"
    texts = [word.replace("EACH", each) for word in command]
    running = [subprocess.Popen(["taskset", "-c", cpu, *texts], stdout=subprocess.PIPE, text=True) for cpu in cpus]
    said = [json.loads(one.communicate()[0].splitlines()[-1]) for one in running]
    whole = {"sent": sum(one["sent"] for one in said), "elapsed_ns": max(one["elapsed_ns"] for one in said)}
    print(json.dumps({**whole, "final": all(one["final"] for one in said)}))
    return max(one.returncode for one in running)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
