# SPDX-License-Identifier: MIT OR Apache-2.0
"""Virtual machines of the lab: an unmodified QEMU, Debian's cloud kernel, and an initial file system
made here, in which a shell carries out lines from the serial console.

Invariants
- QEMU ends with this process, however that ends.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from ringtap_lab.manager import sandbox
from ringtap_lab.scenarios.tool import ToolError

QEMU = "qemu-system-x86_64"
#: Where `scripts/prepare vm` unpacks Debian's cloud kernel.
KERNEL = Path(os.environ.get("RINGTAP_GUEST_KERNEL", Path.home() / ".cache/ringtap/guest-kernel"))
BOOT_SECONDS = 120
#: Programs of this machine that a guest gets, with their libraries.
TOOLS = ("sh", "mount", "insmod", "sleep", "cat", "mkdir", "stty", "ip")
#: In the order of their dependencies; later kernels have some built in.
MODULES = (
    "drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci_legacy_dev", "drivers/virtio/virtio_pci",
    "drivers/char/virtio_console", "net/core/failover", "drivers/net/net_failover",
    "drivers/net/virtio_net", "virt/lib/irqbypass", "drivers/vfio/vfio",
    "drivers/vfio/vfio_virqfd", "drivers/vfio/pci/vfio-pci-core", "drivers/vfio/pci/vfio-pci",
    "drivers/vfio/vfio_iommu_type1",
)  # fmt: skip
INIT = r"""#!/bin/sh
export PATH=/bin
mkdir -p /proc /sys /dev /run /tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
stty -echo -onlcr </dev/console
while read module; do insmod /modules/$module; done </modules/list
export RINGTAP_PCAP=/bin/libringtap_pcap.so
for one in /lib*/libpcap.so.* /lib*/*/libpcap.so.* /usr/lib*/libpcap.so.* /usr/lib*/*/libpcap.so.*
do [ -e $one ] && export RINGTAP_LIBPCAP=$one; done
echo GUEST started
while read -r line; do eval "$line"; done
"""

_numbers = itertools.count()


def unable() -> str | None:
    """Why no guest can be started here, or None."""
    for program in (QEMU, "setpriv", "strip", *TOOLS):
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            return f"{program} is not installed: scripts/prepare vm installs it"
    if not (KERNEL / "boot").exists():
        return f"{KERNEL}: no kernel for guests: scripts/prepare vm downloads it"
    return None


def acceleration() -> str:
    """How QEMU runs a guest here: KVM on bare metal or nested, else emulation."""
    modules = Path("/sys/module")
    has_kvm = any((modules / name).exists() for name in ("kvm_intel", "kvm_amd"))
    return "kvm" if has_kvm and os.access("/dev/kvm", os.W_OK) else "tcg,thread=multi"


def make_image(path: Path, programs: list[Path]) -> None:
    """Writes the initial file system of guests with these programs besides `TOOLS`."""
    files: dict[str, bytes] = {"init": INIT.encode()}
    sources = {f"bin/{name}": Path(_which(name)) for name in TOOLS}
    for program in programs:
        small = path.with_name(f"stripped-{program.name}")
        subprocess.run(["strip", "-o", small, program], check=True)
        sources[f"bin/{program.name}"] = small
    for place, source in sources.items():
        files[place] = source.read_bytes()
        needed = subprocess.run(["ldd", source], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+)", needed):
            files.setdefault(library.lstrip("/"), Path(library).read_bytes())
    for small in path.parent.glob("stripped-*"):
        small.unlink()
    (folder,) = list((KERNEL / "lib/modules").iterdir())[:1]
    names = []
    for module in MODULES:
        source = folder / "kernel" / f"{module}.ko"
        if source.exists():
            files[f"modules/{source.name}"] = source.read_bytes()
            names.append(source.name)
    files["modules/list"] = "".join(f"{name}\n" for name in names).encode()
    with path.open("wb") as archive:
        folders = {str(parent) for place in files for parent in Path(place).parents} - {"."}
        for place in sorted(folders):
            archive.write(_entry(place, 0o040755, b""))
        for place, content in files.items():
            archive.write(_entry(place, 0o100755, content))
        archive.write(_entry("TRAILER!!!", 0, b""))


def _which(name: str) -> str:
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if not found:
        raise ToolError(f"{name} is not installed")
    return os.path.realpath(found)


def _entry(place: str, mode: int, content: bytes) -> bytes:
    """An entry of a cpio archive of the kind "newc"."""
    number = next(_numbers)
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(place) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + place.encode() + b"\0"
    return head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)


class Guest:
    """A running virtual machine; use it with `with`."""

    def __init__(self, name: str, image: Path, tap: str | None = None, has_iommu: bool = True) -> None:
        self.name = name
        self.qmp = sandbox.SCRATCH / f"{name}.qmp"
        self._log = sandbox.SCRATCH / f"{name}.console"
        (kernel,) = list((KERNEL / "boot").glob("vmlinuz*"))[:1]
        words = "console=ttyS0 quiet panic=-1 no_timer_check"
        # Ports of 4 GiB lie above 4 GiB, where /dev/mem maps memory as such.
        ports = ("id=p1,chassis=1", "id=p2,chassis=2,pref64-reserve=4G",
                 "id=p3,chassis=3,pref64-reserve=4G", "id=p4,chassis=4")  # fmt: skip
        self._command = [
            "setpriv", "--pdeathsig", "KILL", QEMU, "-accel", acceleration(),
            "-name", f"{name},debug-threads=on",
            "-M", "q35,kernel-irqchip=split" if acceleration() == "kvm" else "q35",
            *("-cpu host" if acceleration() == "kvm" else "").split(),
            *"-m 768 -smp 2 -display none -nodefaults -no-reboot -serial stdio".split(),
            "-kernel", str(kernel), "-initrd", str(image),
            "-append", words + " intel_iommu=on iommu=pt" * has_iommu,
            "-qmp", f"unix:{self.qmp},server=on,wait=off",
            *("-device", "intel-iommu,intremap=on") * has_iommu,
            *(word for port in ports for word in ("-device", f"pcie-root-port,{port}")),
        ]  # fmt: skip
        if tap:
            self._command += [
                "-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no",
                "-device", "virtio-net-pci,netdev=net,romfile=",
            ]  # fmt: skip

    def __enter__(self) -> Guest:
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.wait()

    def console(self) -> str:
        """All that the guest, or QEMU, has written."""
        return self._log.read_text(errors="replace")

    def wait_for(self, pattern: str, seconds: float = 60, since: int = 0) -> re.Match[str]:
        """Waits for text on the console."""
        end = time.monotonic() + seconds
        while not (found := re.compile(pattern).search(self.console(), since)):
            if self.process.poll() is not None or time.monotonic() > end:
                raise ToolError(f"{self.name}: no {pattern!r}: {self.console()[-1500:]}")
            time.sleep(0.01)
        return found

    def booted(self) -> None:
        """Waits until the guest carries out lines."""
        self.wait_for("GUEST started", BOOT_SECONDS)

    def tell(self, line: str) -> None:
        """Makes the shell in the guest carry out a line, and does not wait for it."""
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def run(self, line: str, seconds: float = 60) -> str:
        """The same; waits for its end and gives what was written meanwhile."""
        since, number = len(self.console()), next(_numbers)
        self.tell(f"{line}\necho GUEST done {number}")
        found = self.wait_for(rf"GUEST done {number}\n", seconds, since)
        return self.console()[since : found.start()]

    def ticks_of(self, seconds: float) -> int:
        """Ticks that the guest's processors are busy in the next seconds, while the shell sleeps."""
        look = "cat /proc/stat"
        before, after = _busy_ticks(self.run(f"{look}; sleep {seconds}; {look}", seconds + 60))
        return after - before

    def host_ns(self) -> int:
        """Nanoseconds that QEMU's threads ran, without those that are the guest's processors."""
        return self._ran_ns(False)

    def guest_ns(self) -> int:
        """Nanoseconds that QEMU's threads ran as the guest's processors. What the guest counts itself
        are samples, which miss most interrupts of an idle processor."""
        return self._ran_ns(True)

    def _ran_ns(self, as_guest: bool) -> int:
        tasks = list(Path(f"/proc/{self.process.pid}/task").iterdir())
        chosen = [one for one in tasks if (one / "comm").read_text().startswith("CPU ") == as_guest]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in chosen)


def _busy_ticks(text: str) -> list[int]:
    """The sum of what is not idle, in each line of all processors."""
    lines = re.findall(r"^cpu +([\d ]+)$", text, re.MULTILINE)
    fields = [[int(one) for one in line.split()] for line in lines]
    return [sum(one[:3]) + sum(one[5:8]) for one in fields]
