# SPDX-License-Identifier: MIT OR Apache-2.0
"""The README's picture: `ringtap top` and `ringtap why` of a real hub with one slow reader.

Exit status: 0 if README.md shows the picture, 1 if a program failed, 2 if nothing could be run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from ringtap_checks.preflight import asked_program
from ringtap_checks.tool import Tool, ToolError
from ringtap_lab import bench
from ringtap_lab.manager import sandbox
from ringtap_lab.root import ROOT

MARKERS = ("<!-- picture:begin -->", "<!-- picture:end -->")
#: How long traffic flows before the pictures, for steady rates.
WARM_UP_SECONDS = 6.0
COLUMNS, LINES, WIDTH = 84, 14, 112
READERS = [("ids", "ids-1", ""), ("ids", "ids-2", ""), ("rec", "dump", "--work zlib:6")]


def top(ringtap: Path) -> str:
    """The screen of `ringtap top` after some seconds, as tmux's terminal shows it."""
    tmux = ["tmux", "-S", str(sandbox.SCRATCH / "tmux"), "-f", "/dev/null"]
    size = ["-x", str(COLUMNS), "-y", str(LINES)]
    subprocess.run([*tmux, "new-session", "-d", *size, f"{ringtap} top"], check=True)
    time.sleep(WARM_UP_SECONDS)
    shown = subprocess.run([*tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True)
    subprocess.run([*tmux, "kill-server"], check=True)
    return shown.stdout.strip()


def why(ringtap: Path) -> str:
    """What `ringtap why` prints, with the first advice only and its lines wrapped."""
    done = subprocess.run([ringtap, "why"], capture_output=True, text=True, check=False)
    if done.returncode != 1:
        raise ToolError(f"ringtap why found no loss: {done.stdout}{done.stderr}")
    finding, found, advice = done.stdout.strip().partition("\n  - ")
    lines = [*finding.split("\n"), *(found + advice).strip("\n").split("\n")[:1]]
    text = "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="    ") for line in lines)
    return f"{text}\n  …"


def take(ringtap: Path) -> int:
    """Everything inside the sandbox; gives the exit status."""
    # The hub's own folder is in /run.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    sandbox.make_veth()
    for words in ("down", "name eth0", "up"):
        device = "eth0" if words == "up" else sandbox.CAPTURED
        subprocess.run(["ip", "link", "set", device, *words.split()], check=True)
    commands = [
        f"{ringtap} count -i hub:{group} --name {name} {work}" for group, name, work in READERS
    ]
    with Tool(f"{ringtap} hub -i eth0 -g ids:2:flow -g rec") as hub:
        hub.wait_ready("ringtap: hub of", "nothing")
        with Tool(commands[0]) as one, Tool(commands[1]) as two, Tool(commands[2]) as slow:
            for reader in (one, two, slow):
                reader.wait_ready(None, "pool")
            send = f"{ringtap} send -i {sandbox.SENDER} --rate 100kpps --flows 64 --size 512"
            with Tool(f"{send} --duration 3600"):
                time.sleep(WARM_UP_SECONDS)
                screen = top(ringtap)
                sentences = why(ringtap)
    part = f"```\n$ ringtap top\n{screen}\n\n$ ringtap why\n{sentences}\n```"
    bench.refresh(ROOT / "README.md", part, MARKERS)
    print("picture: README.md shows ringtap top and ringtap why")
    return 0


def main(words: list[str]) -> int:
    """Runs what the command line asks for; gives the exit status."""
    ringtap = asked_program("picture", "readme", __doc__, words)
    if not ringtap:
        return 2
    os.environ.update(NO_COLOR="1", LC_ALL="C.UTF-8")
    os.environ.pop("RINGTAP_SOCKET", None)
    try:
        return sandbox.run_inside(lambda: take(ringtap))
    except (ToolError, OSError, subprocess.SubprocessError) as error:
        print(f"picture: {error}", file=sys.stderr)
        return 1
