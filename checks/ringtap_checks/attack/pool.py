#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tries every way to write the pool that a hub maps for a reader; prints what the kernel says.

Prints one JSON object: the notes of the subscription, and for each way "written" or the refusal.

Invariants
- A way counts as written only if the reader then sees the bytes in its own read-only mapping.
- The bytes are written behind the region's header, where no packet ever lies.
"""

from __future__ import annotations

import argparse
import ctypes
import encodings.idna  # noqa: F401 (the user may not read it later)
import errno
import json
import mmap
import os
import platform
import pwd
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ringtap_checks.attack.outsider import Endpoint, subscribe

#: Chunk 0 holds the header of the region and never packets.
PLACE, MARK = 2048, b"attacker"
PR_SET_DUMPABLE, PR_SET_KEEPCAPS, CAP_BPF = 4, 8, 39
CAPABILITY_VERSION = 0x20080522
BPF_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280}[platform.machine()]
BPF_MAP_UPDATE_ELEM, BPF_PROG_LOAD, SOCKET_FILTER = 2, 5, 1
SO_ATTACH_BPF = 50
PUNCH_HOLE_AND_KEEP_SIZE = 0x02 | 0x01

_libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """The result of a C function, or its error."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def bpf(command: int, attributes: bytes) -> int:
    """The system call."""
    size = len(attributes)
    buffer = ctypes.create_string_buffer(attributes, size)
    return checked(_libc.syscall(BPF_SYSCALL, command, buffer, size), "bpf")


def _instruction(code: int, dst: int = 0, src: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", code, dst | src << 4, offset, value)


def by_program(endpoint: Endpoint) -> None:
    """A socket filter looks the map's first value up and stores into it."""
    low, high = struct.unpack("<ii", MARK)
    code = b"".join(
        [
            _instruction(0xBF, 2, 10),  # r2 = r10
            _instruction(0x07, 2, value=-4),  # r2 += -4
            _instruction(0x62, 2),  # *(u32 *)r2 = 0
            _instruction(0x18, 1, 1, value=endpoint.pool_fd) + _instruction(0),  # r1 = map
            _instruction(0x85, value=1),  # r0 = map_lookup_elem(r1, r2)
            _instruction(0x15, 0, offset=2),  # if r0 == 0 goto +2
            _instruction(0x62, 0, offset=PLACE, value=low),  # *(u32 *)(r0 + PLACE) = low
            _instruction(0x62, 0, offset=PLACE + 4, value=high),
            _instruction(0xB7, 0),  # r0 = 0
            _instruction(0x95),  # exit
        ]
    )
    text, license_ = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(65_536)
    attributes = struct.pack(
        "<IIQQIIQII", SOCKET_FILTER, len(code) // 8, ctypes.addressof(text), ctypes.addressof(license_),
        1, len(log), ctypes.addressof(log), 0, 0,
    )  # fmt: skip
    program = bpf(BPF_PROG_LOAD, attributes)
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    far.setsockopt(socket.SOL_SOCKET, SO_ATTACH_BPF, program)
    near.send(b"run")


def by_update(endpoint: Endpoint) -> None:
    """bpf(2) updates the map's first value."""
    key = ctypes.create_string_buffer(4)
    value = ctypes.create_string_buffer(endpoint.facts["pool_bytes"])
    value[PLACE : PLACE + len(MARK)] = MARK
    bpf(
        BPF_MAP_UPDATE_ELEM,
        struct.pack("<IIQQQ", endpoint.pool_fd, 0, ctypes.addressof(key), ctypes.addressof(value), 0),
    )


def by_mapping(endpoint: Endpoint) -> None:
    """A writable mapping."""
    size, write = endpoint.facts["pool_bytes"], mmap.PROT_READ | mmap.PROT_WRITE
    with mmap.mmap(endpoint.pool_fd, size, mmap.MAP_SHARED, write) as writable:
        writable[PLACE : PLACE + len(MARK)] = MARK


def _mapping(endpoint: Endpoint) -> int:
    """A read-only mapping, by the C library: its address."""
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    address = _libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_SHARED, endpoint.pool_fd, 0)
    assert address not in (None, ctypes.c_void_p(-1).value), "a read-only mapping"
    return address


def by_protection(endpoint: Endpoint) -> None:
    """A read-only mapping that becomes writable."""
    address, write = _mapping(endpoint), mmap.PROT_READ | mmap.PROT_WRITE
    checked(_libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, write), "mprotect")
    ctypes.memmove(address + PLACE, MARK, len(MARK))


def by_memory_file(endpoint: Endpoint) -> None:
    """/proc/self/mem, which ignores the protection of private mappings."""
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(_mapping(endpoint) + PLACE)
        memory.write(MARK)


def by_write(endpoint: Endpoint) -> None:
    """pwrite(2) on the descriptor."""
    os.pwrite(endpoint.pool_fd, MARK, PLACE)


def by_another_descriptor(endpoint: Endpoint) -> None:
    """The same file, opened again."""
    descriptor = os.open(f"/proc/self/fd/{endpoint.pool_fd}", os.O_RDWR)
    os.pwrite(descriptor, MARK, PLACE)


def by_hole(endpoint: Endpoint) -> None:
    """A hole in the file, which would read as zeros: the region's header would be gone."""
    arguments = [ctypes.c_int(PUNCH_HOLE_AND_KEEP_SIZE), ctypes.c_long(0), ctypes.c_long(mmap.PAGESIZE)]
    checked(_libc.fallocate(endpoint.pool_fd, *arguments), "fallocate")


def by_size(endpoint: Endpoint) -> None:
    """A file of no bytes: whoever reads would be killed."""
    os.ftruncate(endpoint.pool_fd, 0)


WAYS: list[Callable[[Endpoint], None]] = [
    by_mapping, by_protection, by_memory_file, by_write, by_another_descriptor, by_hole, by_update,
    by_program, by_size,
]  # fmt: skip


def attempt(way: Callable[[Endpoint], None], endpoint: Endpoint) -> str:
    """What came of one way."""
    try:
        way(endpoint)
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        return f"refused: {errno.errorcode.get(number, str(error))}"
    seen = endpoint.pool[PLACE : PLACE + len(MARK)]
    return "written" if seen == MARK else "no effect"


def become(user: str, keep_bpf: bool) -> None:
    """Becomes an ordinary user, with CAP_BPF alone or with nothing."""
    entry = pwd.getpwnam(user)
    checked(_libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), "prctl")
    os.setgroups([])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    high = 1 << (CAP_BPF - 32) if keep_bpf else 0
    header = struct.pack("<Ii", CAPABILITY_VERSION, 0)
    sets = struct.pack("<6I", 0, 0, 0, high, high, 0)
    checked(_libc.capset(header, sets), "capset")
    # As a process that was started by this user: it may open its own files in /proc.
    checked(_libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")


def main(words: list[str]) -> int:
    """Tries every way; prints what came of it."""
    parser = argparse.ArgumentParser(prog="ringtap-lab attack-pool", description=__doc__.splitlines()[0])
    parser.add_argument("--socket", required=True)
    parser.add_argument("--group", default="all")
    parser.add_argument("--user", help="user to become; stays root without it")
    parser.add_argument("--bpf", action="store_true", help="keep CAP_BPF, and nothing else")
    asked = parser.parse_args(words)
    if asked.user:
        become(asked.user, asked.bpf)
    _hub, subscription = subscribe(asked.socket, asked.group, "pool writer")
    endpoint = subscription.endpoints[0]
    found = {way.__name__: attempt(way, endpoint) for way in WAYS}
    print(json.dumps({"type": "pool", "notes": endpoint.facts["notes"], "ways": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
