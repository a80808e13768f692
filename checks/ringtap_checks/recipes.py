# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the recipes of docs/recipes.md that need large programs: Suricata, Podman, Docker, Prometheus.

Exit status: 0 if every recipe whose program is installed worked, 1 if one failed, 2 if none could be run.

Invariants
- `ringtap send` says how many packets there are; the other programs' own logs say what they saw.
- A program that is not installed is named as skipped; the last line says how many recipes were skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

from ringtap_checks.preflight import asked_program
from ringtap_checks.tool import Tool, ToolError
from ringtap_lab.manager import sandbox
from ringtap_lab.root import ROOT

PACKETS, FLOWS, MEMBERS = 20_000, 64, 4
#: Far below what two busy cores do.
RATE = "10kpps"
LIMIT_SECONDS = 120.0

SURICATA_YAML = """\
%YAML 1.1
---
default-log-dir: {folder}
stats: {{enabled: yes, interval: 1}}
outputs:
  - eve-log: {{enabled: yes, filetype: regular, filename: eve.json, types: [alert, flow, stats]}}
pcap:
  - interface: hub:ids
    threads: {threads}
    checksum-checks: no
    promisc: yes
"""
RULE = 'alert udp any 10007 -> any any (msg:"port 10007"; sid:1; rev:1;)\n'

PROMETHEUS_YAML = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs: [{{job_name: ringtap, static_configs: [{{targets: ["127.0.0.1:9464"]}}]}}]
"""


def wait_for(what: str, done: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not done():
        if time.monotonic() > end:
            raise ToolError(f"not after {LIMIT_SECONDS:.0f} s: {what}")
        time.sleep(0.1)


def said(*command: object) -> str:
    """The output of a command that must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolError(f"{' '.join(words)}: exit code {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def readers(ringtap: Path) -> list[dict]:
    return json.loads(said(ringtap, "status", "--json"))["readers"]


def send(ringtap: Path) -> None:
    said(ringtap, "send", "-q", "-i", sandbox.SENDER, "--rate", RATE, "--flows", FLOWS,
         "--size", 200, "-c", PACKETS)  # fmt: skip


def expect(what: str, seen: object, wanted: object) -> None:
    if seen != wanted:
        raise ToolError(f"{what}: {seen}, not {wanted}")


def suricata(ringtap: Path, processes: int) -> str:
    """Members of one group that balances flows: several processes, or the threads of one."""
    folders = [sandbox.SCRATCH / f"suricata{processes}-{number}" for number in range(processes)]
    with ExitStack() as stack:
        hub = stack.enter_context(Tool(f"{ringtap} hub -i {sandbox.CAPTURED} -g ids:{MEMBERS}:flow"))
        hub.wait_ready("ringtap: hub of", "nothing")
        tools = []
        for folder in folders:
            folder.mkdir()
            config = SURICATA_YAML.format(folder=folder, threads=MEMBERS // processes)
            (folder / "suricata.yaml").write_text(config)
            (folder / "rules").write_text(RULE)
            command = f"suricata --pcap -c {folder}/suricata.yaml -S {folder}/rules -l {folder}"
            tools.append(stack.enter_context(Tool(f"{ringtap} exec --quiet -- {command}")))
        wait_for("Suricata attaches", lambda: tools[0].must_live() or len(readers(ringtap)) == MEMBERS)
        send(ringtap)
        seen = lambda: sum(one["delivered"] for one in readers(ringtap))  # noqa: E731
        wait_for("Suricata has all packets", lambda: seen() == PACKETS)
        for tool in tools:
            tool.end()
        hub.end()
    events = [
        json.loads(line) for folder in folders for line in (folder / "eve.json").read_text().splitlines()
    ]
    flows = [one for one in events if one["event_type"] == "flow" and one["proto"] == "UDP"]
    expect("flows, each seen by one member", len(flows), FLOWS)
    expect("packets of the flows", sum(one["flow"]["pkts_toserver"] for one in flows), PACKETS)
    # A rule of addresses and ports only alerts once for a flow.
    alerts = [one["src_port"] for one in events if one["event_type"] == "alert"]
    expect("alerts", alerts, [10007])
    version = said("suricata", "-V").strip().removeprefix("This is ")
    return f"{version}: {PACKETS:,} packets, {FLOWS} flows, each whole in one member; 1 alert"


def container_root() -> Path:
    """The root of a container, whose programs are this machine's."""
    # The sandbox's /sys has no control groups.
    if not os.path.ismount("/sys/fs/cgroup"):
        said("mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
    root = sandbox.SCRATCH / "root"
    for folder in ("usr", "run", "proc", "sys", "dev", "tmp", "etc", "lib", "lib64"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    return root


def container(ringtap: Path, run: str, image: str) -> None:
    """A reader in a container without a network or a right."""
    folders = {"/usr": "/usr", "/usr/lib": "/lib", "/usr/lib64": "/lib64", ringtap: "/ringtap"}
    mounts = " ".join(f"-v {here}:{there}:ro" for here, there in folders.items())
    run = f"{run} --network none --cap-drop all {mounts} -v /run/ringtap:/run/ringtap {image}"
    with Tool(f"{ringtap} hub -i {sandbox.CAPTURED} -g rec") as hub:
        hub.wait_ready("ringtap: hub of", "nothing")
        with Tool(f"{run} /ringtap count -q --json -i hub:rec -c {PACKETS}") as reader:
            wait_for("the container attaches", lambda: reader.must_live() or len(readers(ringtap)) == 1)
            send(ringtap)
            wait_for("the container ends", lambda: reader.process.poll() is not None)
            counted = json.loads(reader.output().strip().splitlines()[-1])
        hub.end()
    expect("packets", counted["delivered"], PACKETS)


def podman(ringtap: Path) -> str:
    """A container of Podman."""
    root = container_root()
    limits = "--ulimit nofile=1000:1000 --ulimit nproc=1000:1000"
    run = f"podman --root {root}-images --runroot {root}-state run --rm --cgroups disabled {limits}"
    container(ringtap, run, f"--rootfs {root}")
    return f"{said('podman', '--version').strip()}: {PACKETS:,} packets"


def docker(ringtap: Path) -> str:
    """A container of a Docker server that lives in the sandbox."""
    root = container_root()
    folders = f"--data-root {root}-docker --exec-root /run/docker --pidfile /run/docker.pid"
    network = "--bridge none --iptables=false --ip6tables=false"
    client = "docker -H unix:///run/docker.sock"
    server = f"dockerd -H unix:///run/docker.sock {folders} {network} --storage-driver vfs"
    with Tool(server) as daemon:
        running = lambda: subprocess.run([*client.split(), "version"], capture_output=True, check=False)  # noqa: E731
        wait_for("the Docker server", lambda: daemon.must_live() or running().returncode == 0)
        archive = sandbox.SCRATCH / "root.tar"
        said("tar", "-C", root, "-cf", archive, ".")
        said(*client.split(), "import", archive, "ringtap-reader")
        container(ringtap, f"{client} run --rm", "ringtap-reader")
        version = said(*client.split(), "version", "--format", "{{.Server.Version}}").strip()
        daemon.end()
    return f"Docker {version}: {PACKETS:,} packets"


def prometheus(ringtap: Path) -> str:
    """The alarm of examples/prometheus while a reader loses packets."""
    config = sandbox.SCRATCH / "prometheus.yaml"
    config.write_text(PROMETHEUS_YAML.format(rules=ROOT / "examples/prometheus/ringtap.rules.yml"))
    with ExitStack() as stack:
        device = f"tap:{sandbox.CAPTURED}?pool=4MiB"
        hub = stack.enter_context(Tool(f"{ringtap} hub -i {device} -g rec --metrics 127.0.0.1:9464"))
        hub.wait_ready("ringtap: hub of", "nothing")
        server = stack.enter_context(
            Tool(f"prometheus --config.file={config} --storage.tsdb.path={sandbox.SCRATCH}/prometheus")
        )
        slow = stack.enter_context(Tool(f"{ringtap} count -q -i hub:rec --name slow"))
        wait_for("a reader attaches", lambda: len(readers(ringtap)) == 1)
        os.killpg(slow.process.pid, 19)
        stack.enter_context(Tool(f"{ringtap} send -q -i {sandbox.SENDER} --rate 20kpps --size 1000"))
        wait_for("the alarm", lambda: server.must_live() or "RingtapReaderLosesPackets" in firing())
        board = json.loads((ROOT / "examples/grafana/ringtap.json").read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                question = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")
                wait_for(question, lambda: ask("query?" + urlencode({"query": question}))["result"])
        os.killpg(slow.process.pid, 18)
        why = subprocess.run([ringtap, "why"], capture_output=True, check=False).returncode
        expect("exit status of why", why, 4)
        hub.end()
    version = said("prometheus", "--version").split("\n")[0].split(",")[1].split("(")[0].strip()
    return f"Prometheus {version}: RingtapReaderLosesPackets fires; every panel of the dashboard has data"


def ask(what: str) -> dict:
    """Prometheus' answer, empty before it is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:9090/api/v1/{what}") as answer:
            return json.load(answer)["data"]
    except OSError:
        return {"alerts": [], "result": []}


def firing() -> set[str]:
    """Names of the alarms that Prometheus raises."""
    alerts = ask("alerts")["alerts"]
    return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}


RECIPES: list[tuple[str, str, Callable[[Path], str]]] = [
    ("Suricata, a process per member", "suricata", lambda ringtap: suricata(ringtap, MEMBERS)),
    ("Suricata, a thread per member", "suricata", lambda ringtap: suricata(ringtap, 1)),
    ("a container of Podman", "podman", podman),
    ("a container of Docker", "dockerd", docker),
    ("an alarm on loss", "prometheus", prometheus),
]


def run(ringtap: Path) -> int:
    """Everything inside the sandbox; gives the exit status."""
    # The hub's own folder is in /run.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    sandbox.make_veth()
    return run_installed(ringtap)


def run_installed(ringtap: Path) -> int:
    """The recipes whose programs are installed; gives the exit status."""
    failed = skipped = 0
    for name, program, recipe in RECIPES:
        if not shutil.which(program):
            print(f"recipes: {name}: SKIPPED: {program} is not installed", flush=True)
            skipped += 1
            continue
        try:
            print(f"recipes: {name}: {recipe(ringtap)}", flush=True)
        except (ToolError, OSError, KeyError, ValueError) as error:
            print(f"recipes: {name}: FAILED: {error}", flush=True)
            failed += 1
    print(f"recipes: {failed} of {len(RECIPES)} FAILED, {skipped} SKIPPED", flush=True)
    if skipped == len(RECIPES):
        return 2
    return 1 if failed else 0


def main(words: list[str]) -> int:
    """Runs what the command line asks for; gives the exit status."""
    ringtap = asked_program("recipes", "build", __doc__, words)
    if not ringtap:
        return 2
    return sandbox.run_inside(lambda: run(ringtap))
