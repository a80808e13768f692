# SPDX-License-Identifier: MIT OR Apache-2.0
"""Capture files for the tests, written byte by byte, and namespaces with interfaces."""

import ctypes
import os
import pathlib
import struct
import subprocess
import sys

FIRST_NS = 1_700_000_000_123_456_789
_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
SIM = "sim:max?burst={}&flows=16"


def udp(number: int, payload: int = 18) -> bytes:
    """An Ethernet frame with UDP over IPv4 from port 1000 + number."""
    ethernet = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0])
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + payload, 0, 0, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    return ethernet + ip + struct.pack("!HHHH", 1000 + number, 53, 8 + payload, 0) + bytes(payload)


def write(path: str, frames: list[bytes], first_ns: int = FIRST_NS) -> None:
    """A pcap file with nanoseconds, a packet each microsecond."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for number, frame in enumerate(frames):
            time_ns = first_ns + number * 1000
            file.write(struct.pack("<IIII", time_ns // 10**9, time_ns % 10**9, len(frame), len(frame)) + frame)


class NetworkNamespace:
    """A network namespace of this thread, and of threads that it starts, with the veth pair tx0 and rx0."""

    def __init__(self) -> None:
        self._own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        _checked(_LIBC.unshare(_CLONE_NEWNET))
        ip("link", "add", "tx0", "type", "veth", "peer", "name", "rx0")
        for name in ("tx0", "rx0"):
            # Otherwise the kernel sends packets of its own.
            sysctl = pathlib.Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
            if sysctl.exists():
                sysctl.write_text("1")
            ip("link", "set", name, "up")

    def leave(self) -> None:
        """Ends the namespace, once no thread and no socket is in it."""
        _checked(_LIBC.setns(self._own, _CLONE_NEWNET))
        os.close(self._own)


def ip(*arguments: str) -> None:
    """Runs ip in the namespace of this thread."""
    subprocess.run(["ip", *arguments], check=True)


def _checked(result: int) -> None:
    if result != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))


def in_another_python(program: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with the package of this Python."""
    return subprocess.run([sys.executable, "-P", "-c", program], timeout=60, capture_output=True, text=True)


def ringtap_program() -> str:
    """The program ringtap, which scripts/python-package builds."""
    return os.environ["RINGTAP"]
