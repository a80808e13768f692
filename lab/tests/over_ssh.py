# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs ringtap-lab over a real SSH server in each namespace: `over_ssh.py HOW ARGUMENTS...` of ringtap-lab."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ringtap_lab import command
from ringtap_lab.manager import inventory, network, sandbox

CONFIG = """
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PidFile none
"""
HOST = """
[[host]]
name = "{name}"
roles = ["{name}"]
interfaces = {interfaces}
cpus = {{ sender = 0, reader = 1, capture = 1 }}
python = "{python}"
programs = {{ python = "{python}" }}
ssh = {{ address = "{address}", key = "{folder}/{key}", known_hosts = "{folder}/known_hosts" }}
"""
LIMIT_S = 30


def server(folder: Path, name: str, address: str) -> None:
    """Starts a server in a namespace; it is ready once it accepts connections."""
    config = folder / f"{name}.conf"
    config.write_text(CONFIG.format(address=address, folder=folder))
    start = ["ip", "netns", "exec", name, "/usr/sbin/sshd", "-D", "-e", "-f", config]
    subprocess.Popen(start, stderr=subprocess.DEVNULL)
    probe = f"import socket; socket.create_connection(({address!r}, 22))"
    end = time.monotonic() + LIMIT_S
    while subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False).returncode:
        if time.monotonic() > end:
            sys.exit(f"no server at {address}")


def inside(how: str, words: list[str]) -> int:
    """Makes network, keys, servers and inventory; then runs the manager."""
    network.make(inventory.local({}))
    Path("/run/sshd").mkdir()
    with tempfile.TemporaryDirectory(dir=sandbox.SCRATCH) as name:
        folder = Path(name)
        for key in ("host", "user", "other"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        host_key = (folder / ("other.pub" if how == "wrong-host-key" else "host.pub")).read_text()
        texts, known = [], []
        for host in inventory.local({}).hosts:
            address = network.ADDRESSES[host.name]
            if how != "no-server":
                server(folder, host.name, address)
            interfaces = "{ " + ", ".join(f'{key} = "{one}"' for key, one in host.interfaces.items()) + " }"
            texts.append(HOST.format(name=host.name, interfaces=interfaces, python=sys.executable, address=address,
                                     folder=folder, key="other" if how == "wrong-key" else "user"))  # fmt: skip
            known.append(f"{address} {host_key}")
        (folder / "known_hosts").write_text("".join(known))
        (folder / "hosts.toml").write_text("".join(texts))
        return command.main([*words, "--hosts", str(folder / "hosts.toml")])


if __name__ == "__main__":
    sys.exit(sandbox.run_inside(lambda: inside(sys.argv[1], sys.argv[2:])))
