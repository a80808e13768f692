# SPDX-License-Identifier: MIT OR Apache-2.0
"""An attack: where, how long, what was tried and what was refused.

Invariants
- A refusal or a closed connection is part of the attack: the attacker comes back.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator

from ringtap_checks.attack.outsider import Gone, Hub, Refused, Subscription, subscribe

#: A pause after a refusal, so that an attack is more than its refusals.
PAUSE_SECONDS = 0.02


class Attack:
    """Where to attack, how long, and what came of it."""

    def __init__(self, path: str, group: str, seconds: float) -> None:
        self.path, self.group = path, group
        self.end = time.monotonic() + seconds
        self.tried, self.refused = 0, Counter()
        self.errors: Counter[str] = Counter()

    def attached(self) -> None:
        """Tells that all its subscriptions are there."""
        tell({"type": "attached"})

    def stop(self, *_: object) -> None:
        """Ends it before its time: a handler of Ctrl-C."""
        self.end = 0.0

    def goes_on(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.end

    def subscribe(self, **more: object) -> tuple[Hub, Subscription]:
        """Subscribes as this attacker."""
        return subscribe(self.path, self.group, "attacker", **more)

    def again(self, once: Callable[[], None]) -> None:
        """Repeats one attempt until the time is over, at least once; refusals are counted."""
        while self.goes_on() or not self.tried:
            self.tried += 1
            try:
                once()
            except Refused as error:
                self.refused[error.code] += 1
                time.sleep(PAUSE_SECONDS)
            except (Gone, OSError) as error:
                self.errors[str(error)[:80]] += 1
                time.sleep(PAUSE_SECONDS)

    def held(self, seconds: float) -> Iterator[None]:
        """Steps of a tenth of a second, for as long as the attack lasts."""
        end = min(self.end, time.monotonic() + seconds)
        while time.monotonic() < end:
            time.sleep(0.1)
            yield


def tell(said: dict[str, object]) -> None:
    """Prints an object on a line of its own: in one piece, because attacks of a mix print at the same time."""
    print(json.dumps(said) + "\n", end="", flush=True)


def leave(hubs: list[tuple[Hub, Subscription]]) -> None:
    """Ends connections and subscriptions."""
    for hub, subscription in hubs:
        subscription.close()
        hub.close()
