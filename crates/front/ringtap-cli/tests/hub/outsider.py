# SPDX-License-Identifier: MIT OR Apache-2.0
"""Processes of ordinary users that ask a hub for more than their share.

Written from docs/internals/protocol.md. Usage: outsider.py SOCKET ACTION UID...
"""

import contextlib
import json
import mmap
import os
import socket
import sys
import time

PATH, ACTION, UIDS = sys.argv[1], sys.argv[2], [int(uid) for uid in sys.argv[3:]]
LIMIT_SECONDS = 240


def connect() -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Waits while the queue of new connections is full.
    connection.connect(PATH)
    connection.settimeout(LIMIT_SECONDS)
    return connection


def ask(connection: socket.socket, **request: object) -> tuple[dict, list[int]]:
    connection.send(json.dumps(request).encode())
    message, fds, _, _ = socket.recv_fds(connection, 1 << 17, 64)
    return json.loads(message), list(fds)


def hello() -> socket.socket:
    connection = connect()
    ask(connection, ask="hello", protocol=1, features=[], name="outsider")
    return connection


def attach(**options: object) -> tuple[socket.socket, dict, list[int]]:
    connection = hello()
    answer, fds = ask(connection, ask="attach", group="all", **options)
    return connection, answer, fds


def tell(*words: object) -> None:
    print(*words, flush=True)


def connections() -> None:
    """Opens connections and says nothing, until the hub refuses one; keeps them."""
    kept = []
    while True:
        connection = connect()
        connection.settimeout(0.3)
        try:
            answer = json.loads(connection.recv(1 << 17))
        except TimeoutError:
            kept.append(connection)
            continue
        tell("refused", answer["message"])
        break
    time.sleep(LIMIT_SECONDS)


def silent() -> None:
    """Says nothing, and waits for the end of the connection."""
    connection = connect()
    tell(json.loads(connection.recv(1 << 17))["message"])
    assert connection.recv(1) == b""


def noisy() -> None:
    """Makes the hub log."""
    for _ in range(300):
        connection = connect()
        # The hub may refuse the connection meanwhile, or end it.
        with contextlib.suppress(OSError):
            ask(connection, ask="hello", protocol=1, features=[], name="outsider")
            ask(connection, ask="attach", group="none")
            connection.send(b"x" * 140_000)
        connection.close()
    kept = [connect() for _ in range(100)]
    tell("done", len(kept))


def hoard() -> None:
    """Attaches private readers until the hub refuses one, keeps their memory, and leaves; again."""
    memories = []
    refusal = ""
    deadline = time.monotonic() + LIMIT_SECONDS
    rounds = 0
    while rounds < 5:
        readers = []
        while True:
            connection, answer, fds = attach(private=True)
            if answer["answer"] == "refused":
                refusal = answer["message"]
                break
            size = answer["endpoints"][0]["pool_bytes"]
            memory = mmap.mmap(fds[2], size, prot=mmap.PROT_READ)
            # Reading allocates the pages.
            sum(memory[at] for at in range(0, size, 4096))
            memories.append((fds, memory))
            readers.append(connection)
        # The first refusals of a round may be for memory that the hub is still freeing.
        rounds += bool(readers)
        assert time.monotonic() < deadline, refusal
        for connection in readers:
            connection.close()
        time.sleep(0.05)
    tell("refused", refusal)
    while sum(os.fstat(fds[2]).st_blocks for fds, _ in memories) > 0:
        assert time.monotonic() < deadline, "the hub keeps memory of readers that left"
        time.sleep(0.05)
    tell("attached", len(memories))


def subscriptions() -> None:
    """Attaches until the hub refuses; leaves and attaches again with the memory kept."""
    kept, refusal = [], None
    while refusal is None:
        connection, answer, fds = attach()
        refusal = answer.get("message")
        kept.append((connection, fds))
    tell("refused", refusal)
    for connection, _ in kept:
        connection.close()
    deadline = time.monotonic() + LIMIT_SECONDS
    while attach()[1]["answer"] == "refused":
        assert time.monotonic() < deadline, "a user that left everything may attach"
        time.sleep(0.05)
    tell("attached")


def once() -> None:
    """Attaches as an honest reader does."""
    tell(attach()[1]["answer"])


def removed() -> None:
    """Attaches, waits until the hub answers no more, and tells what it answers then."""
    connection, answer, _ = attach()
    tell(answer["answer"])
    deadline = time.monotonic() + LIMIT_SECONDS
    while ask(connection, ask="statistics")[0]["answer"] != "refused":
        assert time.monotonic() < deadline, "the user is removed"
        time.sleep(0.05)
    for name, request in {
        "statistics": {},
        "credit": {"chunks": 2},
        "filter": {"program": []},
        "status": {"after": 0},
    }.items():
        tell(name, ask(connection, ask=name, **request)[0].get("code", "answered"))


def as_user(uid: int) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    globals()[ACTION]()


for uid in UIDS[1:]:
    if os.fork() == 0:
        as_user(uid)
        os._exit(0)
as_user(UIDS[0])
