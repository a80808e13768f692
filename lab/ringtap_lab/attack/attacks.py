#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attacks on a hub by an unprivileged user, one for each way to hurt other readers.

`list` prints them; `mix` runs several at a time. Each attack prints one JSON object at its end: what
was tried, and how often the hub refused.

Invariants
- The process has no capability and an ordinary user's id before it connects.
"""

from __future__ import annotations

import argparse
import encodings.idna  # noqa: F401 (the user may not read it later)
import json
import os
import pwd
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ringtap_lab.attack import on_filters, on_pool, on_server
from ringtap_lab.attack.attempt import Attack
from ringtap_lab.attack.outsider import Gone, Refused, subscribe

ATTACKS: dict[str, Callable[[Attack], None]] = {
    one.__name__: one
    for one in (
        on_filters.looping_filter, on_filters.jeq_chain, on_filters.verifier_load,
        on_filters.costly_filters, on_filters.filter_storm, on_server.descriptors, on_server.private_pools,
        on_server.kept_mappings, on_server.connections, on_server.attach_storm,
        on_server.log_flood, on_server.deaf, on_pool.doorbell_storm,
        on_pool.ring_storm, on_pool.busy_readers, on_pool.doorbell_watchers, on_pool.hoarding,
        on_pool.idle_crowd, on_pool.die_holding, on_pool.garbage, on_pool.double_returns, on_pool.liar,
    )
}  # fmt: skip


def become(user: str) -> None:
    """Gives up root for an ordinary user without capabilities."""
    entry = pwd.getpwnam(user)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.setgroups([])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    with open("/proc/self/status", "rb") as status:
        assert b"CapPrm:\t0000000000000000" in status.read(), "the attacker has capabilities"


def main(words: list[str]) -> int:
    """Runs one attack; prints what came of it."""
    parser = argparse.ArgumentParser(prog="ringtap-lab attacks", description=__doc__.splitlines()[0])
    parser.add_argument("attack", choices=[*ATTACKS, "list", "mix", "visit"])
    parser.add_argument("--socket", default="/run/ringtap/hub.sock")
    parser.add_argument("--group", default="all")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--user", default="nobody", help="user to become (nobody)")
    parser.add_argument("--only", default="", help="for mix: these attacks, with commas (all)")
    parser.add_argument("--at-once", type=int, default=4, help="for mix: attacks at one time (4)")
    parser.add_argument("--slice", type=float, default=5, help="for mix: seconds of an attack (5)")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(words)
    if asked.attack == "list":
        for name, one in ATTACKS.items():
            print(f"{name:16} {(one.__doc__ or '').splitlines()[0]}")
        return 0
    become(asked.user)
    random.seed(asked.seed)
    if asked.attack == "mix":
        return mix(asked)
    if asked.attack == "visit":
        return visit(asked)
    run(asked.attack, asked.socket, asked.group, asked.seconds)
    return 0


def run(name: str, path: str, group: str, seconds: float) -> None:
    """Runs one attack; prints what came of it."""
    attack = Attack(path, group, seconds)
    ATTACKS[name](attack)
    said = {"type": "attack", "attack": name, "tried": attack.tried}
    said |= {"refused": attack.refused, "errors": attack.errors}
    print(json.dumps(said), flush=True)


def visit(asked: argparse.Namespace) -> int:
    """No attack: an honest user attaches, reads and leaves; prints how often, and the longest wait."""
    end, waits, errors = time.monotonic() + asked.seconds, [], Counter()
    while time.monotonic() < end:
        begun = time.monotonic()
        try:
            hub, subscription = subscribe(asked.socket, asked.group, "visitor")
            waits.append(time.monotonic() - begun)
            subscription.read_for(0.1)
            subscription.close()
            hub.close()
        except (Refused, Gone) as error:
            errors[str(error)[:80]] += 1
        time.sleep(0.2)
    said = {"type": "visits", "visits": len(waits), "longest_wait_s": max(waits, default=0.0)}
    print(json.dumps(said | {"errors": errors}), flush=True)
    return 0


def mix(asked: argparse.Namespace) -> int:
    """Several attacks at a time, one after the other, in an order that the seed gives."""
    names = asked.only.split(",") if asked.only else list(ATTACKS)
    end, at, running = time.monotonic() + asked.seconds, 0, {}
    order = random.sample(names, len(names))
    while running or time.monotonic() < end:
        while len(running) < asked.at_once and (left := end - time.monotonic()) > 0:
            name = order[at % len(order)]
            at += 1
            child = os.fork()
            if child == 0:
                random.seed(asked.seed + at)
                try:
                    run(name, asked.socket, asked.group, min(asked.slice, left))
                finally:
                    sys.stdout.flush()
                    os._exit(0)
            running[child] = name
        child, status = os.wait()
        name = running.pop(child, "?")
        if status:
            print(json.dumps({"type": "attack", "attack": name, "status": status}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
