# SPDX-License-Identifier: MIT OR Apache-2.0
"""Virtual machines of the lab: an unmodified QEMU, Debian's cloud kernel, and an initial file system
made here, in which a shell carries out lines from the serial console.

Invariants
- QEMU and what else starts here ends with this process, however that ends, and stays in its process group.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Self

QEMU = "qemu-system-x86_64"
#: Where `scripts/prepare vm` unpacks Debian's cloud kernel.
KERNEL = Path(os.environ.get("RINGTAP_GUEST_KERNEL", Path.home() / ".cache/ringtap/guest-kernel"))
BOOT_S, END_S = 120.0, 30.0
#: A machine whose processors are busy no longer than this between two looks has read all.
LOOK_S, QUIET_NS = 0.25, 25_000_000
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


class GuestError(Exception):
    """A machine did not do what was asked."""


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
        raise GuestError(f"{name} is not installed")
    return os.path.realpath(found)


def _entry(place: str, mode: int, content: bytes) -> bytes:
    """An entry of a cpio archive of the kind "newc"."""
    number = next(_numbers)
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(place) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + place.encode() + b"\0"
    return head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)


class Program:
    """A program whose output is in a file; use it with `with`."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name, self._command = name, ["setpriv", "--pdeathsig", "KILL", *command]
        self._log = folder / f"{name}.log"

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def output(self) -> str:
        """All that it has written; of a machine, what QEMU and the guest wrote."""
        return self._log.read_text(errors="replace")

    def wait_for(self, pattern: str, seconds: float = 60, since: int = 0) -> re.Match[str]:
        """Waits for text in the output."""
        end = time.monotonic() + seconds
        while not (found := re.compile(pattern).search(self.output(), since)):
            if self.process.poll() is not None or time.monotonic() > end:
                raise GuestError(f"{self.name}: no {pattern!r}: {self.output()[-1500:]}")
            time.sleep(0.01)
        return found

    def end(self) -> None:
        """Ends it as a user does; it must exit with 0."""
        self.process.send_signal(signal.SIGINT)
        if self.process.wait(END_S):
            raise GuestError(f"{self.name}: exit code {self.process.returncode}: {self.output()[-600:]}")

    def ran_ns(self, named: str = "") -> int:
        """Nanoseconds that its threads ran whose names begin like this."""
        try:
            tasks = list(Path(f"/proc/{self.process.pid}/task").iterdir())
            chosen = [one for one in tasks if (one / "comm").read_text().startswith(named)]
            return sum(int((task / "schedstat").read_text().split()[0]) for task in chosen)
        except OSError:
            raise GuestError(f"{self.name}: has ended: {self.output()[-600:]}") from None


class Guest(Program):
    """A running virtual machine."""

    def __init__(self, name: str, image: Path, tap: str = "", has_iommu: bool = True) -> None:
        self.qmp = image.with_name(f"{name}.qmp")
        (kernel,) = list((KERNEL / "boot").glob("vmlinuz*"))[:1]
        # IPv6 would announce itself with packets that nobody sent.
        words = "console=ttyS0 quiet panic=-1 no_timer_check ipv6.disable=1"
        # Ports of 4 GiB lie above 4 GiB, where /dev/mem maps memory as such.
        ports = ("id=p1,chassis=1", "id=p2,chassis=2,pref64-reserve=4G",
                 "id=p3,chassis=3,pref64-reserve=4G", "id=p4,chassis=4")  # fmt: skip
        command = [
            QEMU, "-accel", acceleration(), "-name", f"{name},debug-threads=on",
            "-M", "q35,kernel-irqchip=split" if acceleration() == "kvm" else "q35",
            *("-cpu host" if acceleration() == "kvm" else "").split(),
            "-m", "768", "-smp", "2", "-display", "none", "-nodefaults", "-no-reboot", "-serial", "stdio",
            "-kernel", str(kernel), "-initrd", str(image),
            "-append", words + " intel_iommu=on iommu=pt" * has_iommu,
            "-qmp", f"unix:{self.qmp},server=on,wait=off",
            *("-device", "intel-iommu,intremap=on") * has_iommu,
            *(word for port in ports for word in ("-device", f"pcie-root-port,{port}")),
        ]  # fmt: skip
        if tap:
            command += [
                "-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no",
                "-device", "virtio-net-pci,netdev=net,romfile=",
            ]  # fmt: skip
        super().__init__(name, command, image.parent)

    def booted(self) -> None:
        """Waits until the guest carries out lines."""
        self.wait_for("GUEST started", BOOT_S)

    def tell(self, line: str) -> None:
        """Makes the shell in the guest carry out a line, and does not wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def run(self, line: str, seconds: float = 60) -> str:
        """The same; waits for its end and gives what was written meanwhile."""
        since, number = len(self.output()), next(_numbers)
        self.tell(f"{line}\necho GUEST done {number}")
        found = self.wait_for(rf"GUEST done {number}\n", seconds, since)
        return self.output()[since : found.start()]

    def guest_ns(self) -> int:
        """Nanoseconds that QEMU's threads ran as the guest's processors. What the guest counts itself
        are samples, which miss most interrupts of an idle processor."""
        return self.ran_ns("CPU ")

    def wait_quiet(self) -> None:
        """Waits until the guest's processors have nothing to do."""
        before, end = self.guest_ns(), time.monotonic() + END_S
        while True:
            time.sleep(LOOK_S)
            now = self.guest_ns()
            if now - before <= QUIET_NS:
                return
            if time.monotonic() > end:
                raise GuestError(f"{self.name}: still busy after {END_S:g} s")
            before = now
