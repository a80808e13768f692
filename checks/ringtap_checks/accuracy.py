# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the probe's flows of capture files with those of nfpcapd (nfdump) and of `tshark -z conv`.

usage: scripts/checks accuracy --ringtap PROGRAM [--every NUMBER] [--also FOLDER] [--public]

Makes the files of `captures.py`; `--also` adds those of a folder, for instance of tcpdump's sources;
`--public` those of Debian's package golang-github-google-gopacket-dev, which it downloads and does not
install. Packets and bytes of each direction must be equal, or a rule of RULES must name the difference.

Exit status: 0 if they are, 1 if not, 2 if a tool is missing.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from ringtap_checks import captures

PROTOCOLS = {"tcp": 6, "udp": 17, "icmp": 1, "icmp6": 58, "sctp": 132, "gre": 47, "esp": 50, "ah": 51, "ospfigp": 89,
             "ospf": 89, "igmp": 2, "ipip": 4, "ipv6": 41, "pim": 103, "vrrp": 112, "eigrp": 88, "l2tp": 115}
CONFIG = '[[analysis]]\nkind = "flows"\nidle = "60s"\nactive = "5m"\n'
UNITS = {"bytes": 1, "kB": 1000, "MB": 1000_000}

# Name, tool, traits of which the file has one, and what it means. A difference that none names is a failure.
RULES = [
    ("reassembly", "nfpcapd", {"fragment"}, "nfpcapd counts the fragments of a datagram as one packet, and none of incomplete ones"),
    ("first fragment", "tshark tcp/udp", {"fragment"}, "tshark counts only the first fragment for ports"),
    ("outer packet", "tshark ip", {"tunnel"}, "tshark counts a packet in a tunnel for its outer addresses, too"),
    ("outer packet", "tshark tcp/udp", {"tunnel"}, "tshark counts the datagram of a tunnel, too"),
    ("tunnel", "nfpcapd", {"tunnel"}, "nfpcapd counts the datagram of VXLAN and GTP-U, not the packet in it"),
    ("provider tag", "nfpcapd", {"ieee8021ad"}, "nfpcapd does not know the tag 0x88a8"),
    ("extension header", "nfpcapd", {"ipv6.hopopts", "ipv6.dstopts", "ipv6.routing"}, "nfpcapd takes an extension header for the protocol"),
    ("SCTP ports", "nfpcapd", {"sctp"}, "nfpcapd has no ports of SCTP"),
    ("first fragment", "tshark ip", {"ipv6.fraghdr"}, "tshark counts only the first fragment of IPv6"),
    ("PPP", "nfpcapd", {"ppp"}, "nfpcapd does not read PPP frames"),
    ("cut header", "tshark ip", {"cut IPv6"}, "tshark does not count packets whose IPv6 extension header was cut by the capture"),
    ("cut header", "tshark tcp/udp", {"cut"}, "tshark does not count segments whose TCP header was cut by the capture"),
]

#: Name and words of the probe's reason why it does not read a file.
REFUSALS = [
    ("mixed links", "the packets before it have"),
    ("link type", "cannot be analysed"),
    ("version", "is not supported: convert it"),
]
PACKAGE = "golang-github-google-gopacket-dev"


class Refused(Exception):
    """A program does not read a file."""


def run(*words, **options):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    done = subprocess.run(list(map(str, words)), text=True, errors="replace", **pipes)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        error = [line for line in said if "failed" in line] or said[-1:]
        raise Refused(error[0] if error else f"exit status {done.returncode}")
    return done.stdout


def key_of(protocol, source, source_port, destination, destination_port):
    has_ports = protocol in (6, 17, 132)
    return (protocol, source, source_port if has_ports else 0, destination, destination_port if has_ports else 0)


def ours(ringtap, file, settings=""):
    """Packets, IP bytes and frame bytes of each direction."""
    sums = defaultdict(lambda: [0, 0, 0])
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(CONFIG + settings)
        config.flush()
        lines = run(ringtap, "probe", "-r", file, "--json", "--workers", 1, "--config", config.name).splitlines()
    for flow in map(json.loads, lines):
        if flow["type"] != "flow":
            continue
        name, a, b = flow["proto"], flow["id.orig_h"], flow["id.resp_h"]
        protocol = 58 if name == "icmp" and ":" in a else PROTOCOLS.get(name) or int(name)
        ends = (a, flow["id.orig_p"]), (b, flow["id.resp_p"])
        for way, (one, other) in (("orig", ends), ("resp", ends[::-1])):
            if flow[f"{way}_pkts"]:
                total = sums[key_of(protocol, *one, *other)]
                for at, field in enumerate(("pkts", "ip_bytes", "frame_bytes")):
                    total[at] += flow[f"{way}_{field}"]
    return sums


def nfpcapd(file):
    """Packets and IP bytes of each direction."""
    sums = defaultdict(lambda: [0, 0])
    with tempfile.TemporaryDirectory() as folder:
        words = ["nfpcapd", "-r", file, "-w", folder, "-e", "300,60"]
        said = run(*words, stderr=subprocess.STDOUT)
        if stopped := re.search(r"read error: '(.*)'", said):
            raise Refused(f"stops: {stopped[1]}")
        lines = run("nfdump", "-R", folder, "-q", "-6", "-N", "-o", "fmt:%pr,%sa,%da,%sp,%dp,%pkt,%byt").splitlines()
    for line in lines:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 7 or fields[5] == "0":
            continue
        protocol, a, b, a_port, b_port, packets, size = fields
        number = PROTOCOLS.get(protocol.lower()) or int(protocol)
        port = lambda text: int(text) if text.isdigit() else 0
        total = sums[key_of(number, a, port(a_port), b, port(b_port))]
        total[0] += int(packets)
        total[1] += int(size)
    return sums


def tshark(file, kinds):
    """Packets, frame bytes and their unit of each direction, for conversations of these kinds."""
    taps = [word for kind in kinds for word in ("-z", f"conv,{kind}")]
    lines = run("tshark", "-n", "-r", file, "-q", *taps, "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE").splitlines()
    sums, protocol = defaultdict(lambda: [0, 0, 1]), 0
    for line in lines:
        if line.endswith("Conversations"):
            protocol = {"TCP": 6, "UDP": 17}.get(line.split()[0], 0)
        found = re.match(r"(\S+) +<-> (\S+) +(\d+) (\d+) (\w+) +(\d+) (\d+) (\w+) ", line)
        if not found:
            continue
        ends = [end.rsplit(":", 1) if "tcp" in kinds else (end, 0) for end in found.groups()[:2]]
        ends = [(address, int(port)) for address, port in ends]
        for packets, size, unit, one, other in [(*found.groups()[2:5], *ends[::-1]), (*found.groups()[5:8], *ends)]:
            if int(packets):
                total = sums[(protocol, *one, *other)]
                total[0] += int(packets)
                total[1] += int(size) * UNITS[unit]
                total[2] = max(total[2], UNITS[unit])
    return sums


def traits(file):
    """`fragment`, `tunnel`, `cut`, `cut IPv6` (extension headers), and the protocols in the file."""
    found = set()
    fields = ["-e", "frame.protocols", "-e", "ip.flags.mf", "-e", "ip.frag_offset", "-e", "ipv6.fraghdr.nxt", "-e", "frame.len", "-e", "frame.cap_len", "-e", "_ws.short"]
    options = ["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]
    for line in run("tshark", "-n", "-r", file, "-T", "fields", *fields, *options).splitlines():
        protocols, more, offset, fragment6, length, captured, short = line.split("\t")
        words = protocols.split(":")
        found.update(words)
        if "1" in more.split(",") or set(offset.split(",")) - {"0", ""} or fragment6:
            found.add("fragment")
        if length != captured:
            found.add("cut")
        if "IPv6" in short:
            found.add("cut IPv6")
        if words.count("ip") + words.count("ipv6") > 1 and "icmp" not in words and "icmpv6" not in words:
            found.add("tunnel")
    return found


def differences(ringtap, file):
    """Per tool: directions that differ, with our numbers and the tool's; and tools that do not read the file."""
    flows, refused = ours(ringtap, file), {}
    told = {"headers only": {}, "nfpcapd": {}, "tshark tcp/udp": {}, "tshark ip": {}}
    headers = ours(ringtap, file, "payload_bytes = 0\n")
    for key in flows.keys() | headers.keys():
        if flows.get(key) != headers.get(key):
            told["headers only"][key] = (flows.get(key), headers.get(key))
    try:
        theirs = nfpcapd(file)
        for key in flows.keys() | theirs.keys():
            a, b = flows.get(key, [0, 0])[:2], theirs.get(key, [0, 0])
            if a != b:
                told["nfpcapd"][key] = (a, b)
    except Refused as why:
        refused["nfpcapd"] = str(why)
    with_ports = {key: total for key, total in flows.items() if key[0] in (6, 17)}
    pairs = defaultdict(lambda: [0, 0, 0])
    for (_, a, _, b, _), total in flows.items():
        for at, number in enumerate(total):
            pairs[(0, a, 0, b, 0)][at] += number
    for name, kinds, mine in (("tshark tcp/udp", ["tcp", "udp"], with_ports), ("tshark ip", ["ip", "ipv6"], pairs)):
        try:
            other = tshark(file, kinds)
        except Refused as why:
            refused[name] = str(why)
            continue
        for key in mine.keys() | other.keys():
            packets, _, size = mine.get(key, [0, 0, 0])
            want = other.get(key, [0, 0, 1])
            if packets != want[0] or abs(size - want[1]) >= max(want[2], 1):
                told[name][key] = ([packets, size], want[:2])
    return told, refused


def public(folder):
    """The capture files of PACKAGE."""
    run("apt-get", "download", "-q", PACKAGE, cwd=folder)
    run("dpkg-deb", "-x", next(folder.glob("*.deb")), folder)
    return sorted(file for file in folder.rglob("*.pcap*") if file.is_file())


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringtap", required=True)
    parser.add_argument("--every", type=int, default=1, help="only each so many-th file")
    parser.add_argument("--also", type=Path)
    parser.add_argument("--public", action="store_true")
    args = parser.parse_args(words)
    missing = [tool for tool in ("nfpcapd", "nfdump", "tshark") if not shutil.which(tool)]
    if missing:
        print(f"missing: {', '.join(missing)}", file=sys.stderr)
        return 2
    unexplained, refused_without, used, equal = 0, 0, Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        files = captures.make(Path(folder))[:: args.every]
        files += sorted(file for file in args.also.rglob("*.pcap*") if file.is_file()) if args.also else []
        if args.public:
            (Path(folder) / "public").mkdir()
            files += public(Path(folder) / "public")
        for file in files:
            try:
                told, refused = differences(args.ringtap, file)
            except Refused as why:
                rules = [name for name, words in REFUSALS if words in str(why)]
                used.update(rules)
                refused_without += not rules
                print(f"{file.name}: the probe does not read it: {', '.join(rules) or 'UNEXPLAINED'}: {why}", flush=True)
                continue
            has = traits(file) if any(told.values()) else set()
            why = [f"{tool} does not read it: {reason}" for tool, reason in refused.items()]
            for tool, found in told.items():
                rules = [name for name, of, needs, _ in RULES if of == tool and needs & has]
                if found and rules:
                    used.update(rules)
                    why += [f"{tool}: {', '.join(rules)}"]
                elif found:
                    unexplained += 1
                    why += [f"{tool}: UNEXPLAINED {dict(list(found.items())[:3])}"]
            equal += not why
            print(f"{file.name}: {'; '.join(why) or 'equal'}", flush=True)
    print(
        f"{len(files)} files: {equal} equal, {unexplained} differences and {refused_without} refusals without a rule, "
        f"rules used: {dict(used)}"
    )
    return 1 if unexplained or refused_without else 0
