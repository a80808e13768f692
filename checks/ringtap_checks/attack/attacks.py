#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attacks on a hub by an unprivileged user, one for each way to hurt other readers.

`list` prints them; `mix` runs several at a time. Each attack prints one JSON object at its end, which Ctrl-C
brings: what was tried, and how often the hub refused. An attack that tried nothing ends with 1.

Invariants
- The process has no capability and an ordinary user's id before it connects.
"""

from __future__ import annotations

import argparse
import contextlib
import encodings.idna  # noqa: F401 (the user may not read it later)
import math
import os
import pwd
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ringtap_checks.attack import on_filters, on_pool, on_server
from ringtap_checks.attack.attempt import Attack, tell
from ringtap_checks.attack.outsider import Gone, Refused, subscribe

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
    parser = argparse.ArgumentParser(prog="checks attack.attacks", description=__doc__.splitlines()[0])
    parser.add_argument("attack", choices=[*ATTACKS, "list", "mix", "visit"])
    parser.add_argument("--socket", default="/run/ringtap/hub.sock")
    parser.add_argument("--group", default="all")
    parser.add_argument("--seconds", type=float, default=math.inf, help="how long (until Ctrl-C)")
    parser.add_argument("--user", default="nobody", help="user to become (nobody)")
    parser.add_argument("--only", default="", help="for mix: these attacks, with commas (all)")
    parser.add_argument("--at-once", type=int, default=4, help="for mix: attacks at one time (4)")
    parser.add_argument("--slice", type=float, default=5, help="for mix: seconds of an attack (5)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="order of the attacks (another each time)")
    asked = parser.parse_args(words)
    if asked.attack == "list":
        for name, one in ATTACKS.items():
            print(f"{name:16} {(one.__doc__ or '').splitlines()[0]}")
        return 0
    become(asked.user)
    random.seed(asked.seed)
    tell({"type": "begins", "seed": asked.seed})
    if asked.attack == "mix":
        return mix(asked)
    if asked.attack == "visit":
        return visit(asked)
    return 0 if run(asked.attack, asked.socket, asked.group, asked.seconds) else 1


def run(name: str, path: str, group: str, seconds: float) -> int:
    """Runs one attack; prints what came of it, and gives how often it tried."""
    attack = Attack(path, group, seconds)
    signal.signal(signal.SIGINT, attack.stop)
    ATTACKS[name](attack)
    said = {"type": "attack", "attack": name, "tried": attack.tried}
    said |= {"refused": attack.refused, "errors": attack.errors}
    tell(said)
    return attack.tried


def visit(asked: argparse.Namespace) -> int:
    """No attack: an honest user attaches, reads and leaves; prints how often, and the longest wait."""
    limit, waits, errors = Attack(asked.socket, asked.group, asked.seconds), [], Counter()
    signal.signal(signal.SIGINT, limit.stop)
    while limit.goes_on():
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
    tell(said | {"errors": errors})
    return 0


def mix(asked: argparse.Namespace) -> int:
    """Several attacks at a time, one after the other, in an order that the seed gives; prints how often they tried."""
    names = asked.only.split(",") if asked.only else list(ATTACKS)
    end, at, running, broken = time.monotonic() + asked.seconds, 0, {}, []

    # An exception in its place may be lost in `fork`, whose callbacks let none out.
    def stop(*_: object) -> None:
        nonlocal end
        end = 0.0
        for child in list(running):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGINT)

    signal.signal(signal.SIGINT, stop)
    order = random.sample(names, len(names))
    counts, told = os.pipe()
    while running or time.monotonic() < end:
        while len(running) < asked.at_once and (left := end - time.monotonic()) > 0:
            name = order[at % len(order)]
            at += 1
            child = os.fork()
            if child == 0:
                _part(name, asked, min(asked.slice, left), at, told)
            running[child] = name
        if not running:
            break
        child, status = os.wait()
        name = running.pop(child, "?")
        broken += [f"{name} ended with {status}"] * bool(status)
    os.close(told)
    tried = sum(int(line) for line in os.fdopen(counts))
    tell({"type": "mix", "attacks": at, "tried": tried, "broken": broken})
    return 1 if broken or not tried else 0


def _part(name: str, asked: argparse.Namespace, seconds: float, number: int, told: int) -> None:
    """One attack of a mix, in a process of its own; writes to a pipe how often it tried."""
    status = 1
    random.seed(asked.seed + number)
    try:
        os.write(told, b"%d\n" % run(name, asked.socket, asked.group, seconds))
        status = 0
    finally:
        sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
