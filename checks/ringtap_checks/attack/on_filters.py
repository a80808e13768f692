# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attacks with filters: costly to run, to translate, to verify, to change."""

from __future__ import annotations

import random
from collections.abc import Callable

from ringtap_checks.attack import programs
from ringtap_checks.attack.attempt import Attack, leave
from ringtap_checks.attack.outsider import Refused


def with_filter(attack: Attack, program: Callable[[int], list[int]]) -> None:
    """Subscribes with a filter, reads for a moment, changes it, leaves."""

    def once() -> None:
        hub, subscription = attack.subscribe(filter=program(random.getrandbits(16)))
        try:
            subscription.read_for(0.5)
            hub.filter(program(random.getrandbits(16)))
            subscription.read_for(0.5)
        finally:
            subscription.close()
            hub.close()

    attack.again(once)


def looping_filter(attack: Attack) -> None:
    """A filter that runs for seconds on each packet."""
    with_filter(attack, lambda _salt: programs.looping())


def jeq_chain(attack: Attack) -> None:
    """A filter whose translation is deep and large; eight subscriptions at once."""

    def once() -> None:
        hubs = []
        try:
            for _ in range(8):
                hubs.append(attack.subscribe(filter=programs.jeq_chain()))
            for _ in attack.held(1):
                pass
        finally:
            leave(hubs)

    attack.again(once)


def verifier_load(attack: Attack) -> None:
    """Filters that the kernel's verifier needs long for, each a new one."""
    with_filter(attack, programs.ladder)


def costly_filters(attack: Attack) -> None:
    """The costliest filters that a user's readers may have in the source, from large to small."""

    def once() -> None:
        hubs = []
        try:
            for count in (511, 64, 16, 10, 8, 4, 2, 1):
                hubs.append(attack.subscribe(filter=programs.loads(count, random.getrandbits(5))))
            for _ in attack.held(1):
                pass
        finally:
            leave(hubs)

    attack.again(once)


def filter_storm(attack: Attack) -> None:
    """Changes the filter as often as the hub answers."""

    def once() -> None:
        hub, subscription = attack.subscribe()
        try:
            while attack.goes_on():
                try:
                    hub.filter(programs.port(random.getrandbits(16)))
                except Refused as error:
                    attack.refused[error.code] += 1
                attack.tried += 1
                subscription.read()
        finally:
            subscription.close()
            hub.close()

    attack.again(once)
