# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attacks on the server: connections, descriptors, messages, subscriptions, memory, its log."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from contextlib import closing

from ringtap_checks.attack import programs
from ringtap_checks.attack.attempt import Attack, leave
from ringtap_checks.attack.outsider import Gone, Hub, Refused, Subscription

#: Ends of connections that must stay open.
KEPT: list[socket.socket] = []


def lingering() -> int:
    """A TCP socket whose last close waits a minute: its peer never reads."""
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    near.setblocking(False)
    try:
        while True:
            near.send(b"x" * 65_536)
    except BlockingIOError:
        pass
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    KEPT.append(far)
    listener.close()
    return near.detach()


def send_away(send: Callable[[int], None]) -> None:
    """Sends a lingering socket and closes it here, so that the receiver's close is the last."""
    descriptor = lingering()
    try:
        send(descriptor)
    except (OSError, Gone):
        # Nobody else has it: this process must not be the one that waits.
        with socket.socket(fileno=descriptor) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise
    os.close(descriptor)


def descriptors(attack: Attack) -> None:
    """Sends sockets whose last close blocks, before `hello`, with requests and by the doorbell."""
    hello = {"ask": "hello", "protocol": 1, "features": [], "name": "x"}

    def by_doorbell(subscription: Subscription) -> None:
        with socket.socket(fileno=os.dup(subscription.doorbell)) as doorbell:
            send_away(lambda descriptor: socket.send_fds(doorbell, [b"x"], [descriptor]))

    def counted(send: Callable[[], None]) -> None:
        try:
            send()
        except (OSError, Gone) as error:
            attack.errors[str(error)[:80]] += 1

    def once() -> None:
        with closing(Hub(attack.path)) as hub:
            counted(lambda: send_away(lambda descriptor: hub.send(hello, [descriptor])))
        with closing(Hub(attack.path)) as hub:
            hub.hello("x")
            subscription = hub.attach(attack.group)
            counted(lambda: by_doorbell(subscription))
            counted(lambda: send_away(lambda one: hub.send({"ask": "status"}, [one])))
            subscription.read_for(0.2)
            subscription.close()
        while len(KEPT) > 32:
            KEPT.pop(0).close()

    attack.again(once)


def private_pools(attack: Attack) -> None:
    """As many private subscriptions as the hub gives, then all again."""

    def once() -> None:
        held = []
        try:
            while attack.goes_on():
                attack.tried += 1
                held.append(attack.subscribe(private=True))
        except (Refused, Gone):
            for _ in attack.held(1):
                for _hub, subscription in held:
                    subscription.read()
            raise
        finally:
            leave(held)

    attack.again(once)


def kept_mappings(attack: Attack) -> None:
    """Attaches private, keeps the mapping, detaches, attaches again on the same connection."""

    def once() -> None:
        hub, kept = Hub(attack.path), []
        try:
            hub.hello("keeps-mappings")
            while attack.goes_on():
                attack.tried += 1
                kept.append(hub.attach(attack.group, private=True))
                for descriptor in kept[-1].descriptors:
                    os.close(descriptor)
                hub.ask({"ask": "detach"})
        finally:
            hub.close()
            for one in kept:
                for endpoint in one.endpoints:
                    endpoint.close()

    attack.again(once)


def connections(attack: Attack) -> None:
    """Opens as many connections as it can and says nothing."""

    def once() -> None:
        held = []
        try:
            for _ in range(2000):
                held.append(Hub(attack.path))
            for _ in attack.held(2):
                pass
        finally:
            for hub in held:
                hub.close()

    attack.again(once)


def attach_storm(attack: Attack) -> None:
    """Attaches and detaches as often as the hub answers, with a filter every other time."""

    def once() -> None:
        hub = Hub(attack.path)
        try:
            hub.hello("comes and goes")
            while attack.goes_on():
                attack.tried += 1
                more = {"filter": programs.port(attack.tried % 65_536)} if attack.tried % 2 else {}
                hub.attach(attack.group, **more).close()
                hub.ask({"ask": "detach"})
        finally:
            hub.close()

    attack.again(once)


def log_flood(attack: Attack) -> None:
    """Everything that a hub may write a line about: bad messages, versions, groups, sizes."""
    bad = [
        b"\x1b[2Jnonsense", b"{}", b"[" * 60_000, b"x" * 131_073,
        b'{"ask":"hello","protocol":99,"features":[],"name":"x"}',
        b'{"ask":"hello","protocol":1,"features":[],"name":"\\u001b[31mred\\n"}',
        b'{"ask":"attach","group":"no such group"}', b'{"ask":"inline"}',
    ]  # fmt: skip

    def once() -> None:
        hub = Hub(attack.path)
        try:
            for message in bad * 20:
                try:
                    hub.send(message)
                    hub.receive()
                except Gone:
                    hub.close()
                    hub = Hub(attack.path)
        finally:
            hub.close()

    attack.again(once)


def deaf(attack: Attack) -> None:
    """Asks without end and never takes an answer."""

    def once() -> None:
        hub, subscription = attack.subscribe()
        try:
            hub.socket.settimeout(0.2)
            while attack.goes_on():
                hub.send({"ask": "status"})
        finally:
            subscription.close()
            hub.close()

    attack.again(once)
