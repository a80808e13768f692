# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attacks on the pool and the control region: chunks kept, lies, doorbells."""

from __future__ import annotations

import os
import random
import select
import signal
import time
from collections.abc import Callable

from ringtap_checks.attack.attempt import Attack, leave
from ringtap_checks.attack.outsider import ASLEEP, CONTROL_MAGIC, DELIVERED, SLEEPS, Gone, Refused, Subscription

#: Copies of a doorbell that one process watches.
WATCHERS = 18_000
#: Subscriptions of a crowd: fewer than a user may have.
CROWD = 60


def doorbell_storm(attack: Attack) -> None:
    """Rings without a pause, fills the counter, and makes both doorbells wait."""

    def once() -> None:
        hub, subscription = attack.subscribe()
        try:
            os.set_blocking(subscription.hubs_doorbell, False)
            try:
                os.write(subscription.hubs_doorbell, (2**64 - 2).to_bytes(8, "little"))
            except OSError as error:
                attack.errors[f"fill: {error}"] += 1
            while attack.goes_on():
                for blocks in (True, False):
                    os.set_blocking(subscription.doorbell, blocks)
                for _ in range(1000):
                    subscription.ring()
                subscription.read()
        finally:
            subscription.close()
            hub.close()

    attack.again(once)


def ring_storm(attack: Attack) -> None:
    """Rings without a pause, and does nothing else: each ring is one that the hub can hear."""
    _again_and_again(attack, Subscription.ring)


def busy_readers(attack: Attack) -> None:
    """Takes nothing, and takes processor time: what a storm of rings does beside its rings."""
    _again_and_again(attack, lambda _: None)


def _again_and_again(attack: Attack, do: Callable[[Subscription], None]) -> None:
    """A reader that takes nothing and does this without a pause."""

    def once() -> None:
        hub, subscription = attack.subscribe()
        attack.attached()
        try:
            while attack.goes_on():
                for _ in range(10_000):
                    do(subscription)
        finally:
            subscription.close()
            hub.close()

    attack.again(once)


def doorbell_watchers(attack: Attack) -> None:
    """Watches its doorbell many thousand times, which makes signals slow, and asks for each signal."""

    def once() -> None:
        hub, subscription = attack.subscribe()
        copies, watch = [], select.epoll()
        try:
            try:
                while len(copies) < WATCHERS:
                    copies.append(os.dup(subscription.doorbell))
                    watch.register(copies[-1], select.EPOLLIN | select.EPOLLET)
            except OSError as error:
                attack.errors[f"{len(copies)} watchers: {error}"] += 1
            while attack.goes_on():
                subscription.silence()
                for endpoint in subscription.endpoints:
                    # It never says how far it has read: there is always news for it.
                    endpoint.store32(SLEEPS, endpoint.load32(SLEEPS) + 1)
                    endpoint.store32(ASLEEP, 1)
        finally:
            watch.close()
            for copy in copies:
                os.close(copy)
            subscription.close()
            hub.close()

    attack.again(once)


def hoarding(attack: Attack) -> None:
    """Four readers that take every chunk they get and return none."""

    def once() -> None:
        held = []
        try:
            for _ in range(4):
                held.append(attack.subscribe())
            while attack.goes_on():
                for _hub, subscription in held:
                    for endpoint in subscription.endpoints:
                        endpoint.accept()
                time.sleep(0.005)
        finally:
            leave(held)

    attack.again(once)


def idle_crowd(attack: Attack) -> None:
    """Sixty readers that take nothing: the hub must count what each of them misses."""

    def once() -> None:
        held = []
        try:
            while len(held) < CROWD and attack.goes_on():
                try:
                    held.append(attack.subscribe())
                except (Refused, Gone):
                    # Others of this user have the rest: so many are a crowd, too.
                    if not held:
                        raise
                    break
            attack.attached()
            while attack.goes_on():
                time.sleep(0.1)
        finally:
            leave(held)

    attack.again(once)


def die_holding(attack: Attack) -> None:
    """Readers that take every chunk they get and are killed, again and again."""

    def once() -> None:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            _hub, subscription = attack.subscribe()
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                for endpoint in subscription.endpoints:
                    endpoint.accept()
                time.sleep(0.002)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    attack.again(once)


def garbage(attack: Attack) -> None:
    """Writes random numbers into every word of the control region."""

    def once() -> None:
        hub, subscription = attack.subscribe()
        try:
            for endpoint in subscription.endpoints:
                assert endpoint.control[:8] == CONTROL_MAGIC
                size = len(endpoint.control)
                for _ in range(2000):
                    at = random.choice([random.randrange(0, 192), random.randrange(0, size - 8)])
                    value = random.choice([0, 1, 2**31, 2**32 - 1, random.getrandbits(32)])
                    endpoint.store32(at // 4 * 4, value)
                    if random.random() < 0.05:
                        subscription.ring()
            for _ in attack.held(0.2):
                pass
        finally:
            subscription.close()
            hub.close()

    attack.again(once)


def liar(attack: Attack) -> None:
    """Reports impossible numbers of packets and bytes, also by a private reader, and leaves with them."""

    def once() -> None:
        for private in (False, True):
            hub, subscription = attack.subscribe(private=private)
            try:
                for endpoint in subscription.endpoints:
                    for number in range(4):
                        lie = random.choice([2**64 - 1, 2**63, random.getrandbits(64)])
                        endpoint.store64(DELIVERED + 8 * number, lie)
                for _ in attack.held(0.2):
                    pass
            finally:
                subscription.close()
                hub.close()

    attack.again(once)


def double_returns(attack: Attack) -> None:
    """Returns chunks that it does not hold, twice, or that do not exist."""

    def once() -> None:
        hub, subscription = attack.subscribe()
        try:
            for _ in attack.held(0.3):
                for endpoint in subscription.endpoints:
                    endpoint.accept()
                    for lane in endpoint.lanes:
                        for chunk, _slot in lane.chunks[:2] * 2:
                            endpoint.give_back(chunk)
                    endpoint.give_back(random.getrandbits(20))
                subscription.ring()
        finally:
            subscription.close()
            hub.close()

    attack.again(once)
