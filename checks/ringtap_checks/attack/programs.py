# SPDX-License-Identifier: MIT OR Apache-2.0
"""Filters that cost more than they look: classic BPF as lists of 64-bit numbers.

Each is valid for a filter's own checks of length, or misses them on purpose.
"""

from __future__ import annotations

MAX_INSTRUCTIONS = 4096

LDB_ABSOLUTE, LDB_INDEXED, LDH_ABSOLUTE = 0x30, 0x50, 0x28
JA, JEQ, JSET, RET, STORE, LOAD_MEMORY, TAX, ADD_X = 0x05, 0x15, 0x45, 0x06, 0x02, 0x60, 0x07, 0x0C


def instruction(code: int, k: int = 0, jt: int = 0, jf: int = 0) -> int:
    """One `struct sock_filter` as a number."""
    return code | jt << 16 | jf << 24 | (k & 0xFFFF_FFFF) << 32


ACCEPT, REJECT = instruction(RET, 0xFFFF), instruction(RET, 0)


def looping() -> list[int]:
    """Loads and a jump back: 40 million steps a packet before a limit of steps ends it."""
    body = [instruction(LDB_ABSOLUTE, 12)] * (MAX_INSTRUCTIONS - 6)
    return [*body, instruction(JA, -(len(body) + 1)), ACCEPT]


def jeq_chain() -> list[int]:
    """A chain of comparisons, as deep as a filter may be."""
    chain = [instruction(JEQ, at, jt=at % 2, jf=0) for at in range(MAX_INSTRUCTIONS - 4)]
    return [instruction(LDH_ABSOLUTE, 12), *chain, ACCEPT, REJECT]


def ladder(salt: int = 0) -> list[int]:
    """Branches that meet again with different contents of scratch memory: the kernel's verifier
    must follow each way on its own. `salt` makes a program that no memory of refusals knows."""
    steps = [instruction(LDH_ABSOLUTE, 12 + salt % 8), instruction(STORE, 0, 0)]
    for at in range(16):
        steps += [
            instruction(LDB_ABSOLUTE, at + salt % 16),
            instruction(JSET, 1 + salt % 127, jt=0, jf=1),
            instruction(STORE, at % 16),
            instruction(TAX),
        ]
    return [*steps, instruction(LOAD_MEMORY, 15), instruction(ADD_X), ACCEPT]


def long_valid(salt: int = 0) -> list[int]:
    """As many instructions as allowed, all of them harmless."""
    loads = [instruction(LDB_ABSOLUTE, (at + salt) % 14) for at in range(MAX_INSTRUCTIONS - 1)]
    return [*loads, ACCEPT]


def loads(count: int, salt: int = 0) -> list[int]:
    """Indexed loads, of which each is compared with the packet's end, and no match."""
    return [*(instruction(LDB_INDEXED, (at * 8 + salt) % 40) for at in range(count)), REJECT]


def port(number: int) -> list[int]:
    """UDP or TCP over IPv4 to a port: a usual small filter."""
    return [
        instruction(LDH_ABSOLUTE, 12), instruction(JEQ, 0x0800, 0, 3),
        instruction(LDH_ABSOLUTE, 36), instruction(JEQ, number, 0, 1), ACCEPT, REJECT,
    ]  # fmt: skip
