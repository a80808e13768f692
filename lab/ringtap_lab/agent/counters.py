# SPDX-License-Identifier: MIT OR Apache-2.0
"""Counters of the kernel on this machine: devices, processors, and what a daemon left behind."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Any

LIMIT_S = 20


def device(name: str) -> dict[str, int]:
    """All counters of a device, as in `ip -s link`."""
    folder = Path("/sys/class/net") / name / "statistics"
    return {one.name: int(one.read_text()) for one in folder.iterdir()}


def processors() -> dict[str, dict[str, int]]:
    """Per CPU, ticks that it was busy and that the hypervisor took, since boot."""
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *words = line.split()
        if re.fullmatch(r"cpu\d+", name):
            fields = [int(one) for one in words]
            found[name.removeprefix("cpu")] = {"busy": sum(fields[:3]) + sum(fields[5:8]), "stolen": fields[7]}
    return found


def softnet_dropped() -> int:
    """Packets that the kernel's backlog queues dropped."""
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines)


def everything(devices: list[str]) -> dict[str, Any]:
    """One look at all counters."""
    return {
        "time_ns": time.monotonic_ns(),
        "tick_ms": 1000 // os.sysconf("SC_CLK_TCK"),
        "devices": {name: device(name) for name in devices},
        "processors": processors(),
        "softnet_dropped": softnet_dropped(),
    }


def xdp_attached(name: str) -> bool:
    """Whether an XDP program is on the device."""
    text = _output(["ip", "-j", "link", "show", "dev", name])
    return bool(text) and "xdp" in json.loads(text)[0]


def leftovers(name: str) -> list[str]:
    """What a daemon left behind on a device, in words."""
    found = []
    if xdp_attached(name):
        found.append("an XDP program on the device")
    index = (Path("/sys/class/net") / name / "ifindex").read_text().strip()
    lines = Path("/proc/net/packet").read_text().splitlines()[1:]
    sockets = sum(line.split()[4] == index for line in lines)
    if sockets:
        found.append(f"{sockets} packet sockets")
    if "clsact" in _output(["tc", "qdisc", "show", "dev", name]):
        found.append("a clsact qdisc")
    return found


def facts() -> dict[str, Any]:
    """CPU, cores, memory, kernel and system of this machine."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.MULTILINE)
    mhz = re.findall(r"^cpu MHz\s*: ([\d.]+)", cpuinfo, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        system = "unknown"
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "architecture": platform.machine(),
        "mhz": round(max(map(float, mhz))) if mhz else None,
        "cores": os.cpu_count(),
        "memory_mib": int(memory.group(1)) // 1024 if memory else None,
        "virtual": " hypervisor" in cpuinfo,
        "governor": governor.read_text().strip() if governor.exists() else "unknown",
        "kernel": platform.release(),
        "system": system,
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "root": os.geteuid() == 0,
    }


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
