# SPDX-License-Identifier: MIT OR Apache-2.0
"""A hub and its readers, each a process of its own, for scenarios that are not on the lab's own loop yet."""

from __future__ import annotations

from ringtap_lab.scenarios import parse
from ringtap_lab.scenarios.contenders import RING_MIB, TASKSET, Contender

HUB_COMMAND = (
    TASKSET + "{ringtap} hub -i 'tap:{dev}?exclusive&direction=in&pool={ring_mib}MiB' -g all "
    "--socket {scratch}/hub.sock"
)
HUB = Contender(
    "ringtap hub",
    TASKSET + "{ringtap} count --quiet --json --work headers -i 'hub:all?socket={scratch}/hub.sock'",
    parse.ringtap, "pool", note=f"exclusive tap: packets end here; one pool of {RING_MIB} MiB for all readers",
)  # fmt: skip
