#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes capture files of known variety for `accuracy.py`; needs Scapy.

usage: captures.py FOLDER
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from scapy.all import (
    ARP,
    BOOTP,
    GRE,
    ICMP,
    IP,
    LLC,
    SCTP,
    TCP,
    UDP,
    VXLAN,
    Dot1Q,
    Dot3,
    Ether,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NS,
    IPOption_Timestamp,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    PPPoE,
    Raw,
    RawPcapNgWriter,
    RawPcapWriter,
    fragment,
    fragment6,
)

LINKTYPE_ETHERNET, LINKTYPE_RAW = 1, 101
MACS = "02:00:00:00:00:01", "02:00:00:00:00:02"
START = 1_700_000_000.0
CLIENT, SERVER = ("10.1.0.1", 40_000), ("10.2.0.1", 443)
CLIENT6, SERVER6 = ("2001:db8::1", 40_000), ("2001:db8::2", 443)


def ether(vlans=(), tpid=0x8100):
    head = Ether(src=MACS[0], dst=MACS[1], **({"type": tpid} if len(vlans) > 1 else {}))
    for vlan in vlans:
        head /= Dot1Q(vlan=vlan)
    return head


def labels(*numbers):
    """Ethernet with MPLS labels."""
    words = [number << 12 | (number == numbers[-1]) << 8 | 64 for number in numbers]
    return Ether(src=MACS[0], dst=MACS[1], type=0x8847) / Raw(b"".join(word.to_bytes(4) for word in words))


def ip(source, destination, **fields):
    kind = IPv6 if ":" in source[0] else IP
    return kind(src=source[0], dst=destination[0], **fields)


def tcp(source, destination, flags, seq, size=0, head=None, **fields):
    layer = TCP(sport=source[1], dport=destination[1], flags=flags, seq=seq, ack=1 if "A" in flags else 0)
    packet = (ether() if head is None else head) / ip(source, destination, **fields) / layer
    return packet / Raw(b"x" * size) if size else packet


def udp(source, destination, size, head=None, **fields):
    packet = (ether() if head is None else head) / ip(source, destination, **fields)
    return packet / UDP(sport=source[1], dport=destination[1]) / Raw(b"y" * size)


def connection(a=CLIENT, b=SERVER, sizes=(100, 900), end="FA", head=None):
    packets = [tcp(a, b, "S", 0, head=head), tcp(b, a, "SA", 0, head=head), tcp(a, b, "A", 1, head=head)]
    here, there = 1, 1
    for number, size in enumerate(sizes):
        if number % 2 == 0:
            packets.append(tcp(a, b, "PA", here, size, head=head))
            here += size
        else:
            packets.append(tcp(b, a, "PA", there, size, head=head))
            there += size
    if end == "FA":
        packets += [tcp(a, b, "FA", here, head=head), tcp(b, a, "FA", there, head=head), tcp(a, b, "A", here + 1, head=head)]
    elif end:
        packets.append(tcp(b, a, end, there, head=head))
    return packets


def timed(*pauses_and_packets):
    """Packets with their times; a number is a pause before the next packet, in seconds."""
    now, out = START, []
    for one in pauses_and_packets:
        if isinstance(one, (int, float)):
            now += one
        else:
            for packet in one if isinstance(one, list) else [one]:
                out.append((now, packet))
                now += 0.001
    return out


def mixed(seed, count=400):
    rng = random.Random(seed)
    packets = []
    for _ in range(count):
        a = (f"10.1.{rng.randrange(3)}.{rng.randrange(1, 9)}", rng.randrange(1024, 1044))
        b = (f"10.2.0.{rng.randrange(1, 5)}", rng.choice([22, 80, 443]))
        if rng.random() < 0.5:
            a, b = b, a
        packets.append(tcp(a, b, rng.choice(["A", "PA", "S", "SA", "FA", "R"]), rng.randrange(1 << 32), rng.randrange(40))
                       if rng.random() < 0.6 else udp(a, b, rng.randrange(1, 40)))
    return packets


def icmp(source, destination, **fields):
    return ether() / ip(source, destination) / ICMP(**fields) / Raw(b"z" * 32)


def captures():
    """Names of files, and their timed packets."""
    a, b, a6, b6 = CLIENT, SERVER, CLIENT6, SERVER6
    big = udp(a, b, 4000)
    big6 = ether() / ip(a6, b6) / IPv6ExtHdrFragment(id=7) / UDP(sport=1000, dport=2000) / Raw(b"w" * 4000)
    broken = ether() / ip(b, a) / ICMP(type=3, code=3) / ip(a, b) / UDP(sport=a[1], dport=b[1]) / Raw(b"y" * 8)
    inner = lambda layer: layer / connection()[3].getlayer(IP)
    made = {
        "tcp": connection(), "tcp-reset": connection(end="R"), "tcp-refused": [tcp(a, b, "S", 0), tcp(b, a, "RA", 0)],
        "tcp-open": connection(end=""), "tcp-half": [tcp(a, b, "S", 0)] * 3, "tcp-many-sizes": connection(sizes=range(1, 1400, 200)),
        "tcp-retransmitted": connection(end="") + [tcp(a, b, "PA", 1, 100)] * 4 + [tcp(a, b, "FA", 101)],
        "tcp-disordered": connection()[::-1], "tcp-keep-alive": connection(end="") + [tcp(a, b, "A", 100)] * 5,
        "tcp-no-start": connection()[3:], "tcp-no-flags": [tcp(a, b, "", 1, 10)], "tcp-all-flags": [tcp(a, b, "FSRPAUEC", 1, 10)],
        "tcp-synchronised-only": [tcp(b, a, "SA", 0), tcp(a, b, "A", 1)], "tcp-both-close": connection(end="") + [tcp(a, b, "FA", 101), tcp(b, a, "FA", 901)],
        "syn-flood": [tcp((f"10.9.{n >> 8}.{n & 255}", 1024 + n), b, "S", n) for n in range(300)],
        "port-scan": [one for n in range(1, 200) for one in (tcp(a, (b[0], n), "S", 0), tcp((b[0], n), a, "RA", 0))],
        "tcp-same-ports-again": timed(connection(), 0.5, connection()), "tcp-same-ports-later": timed(connection(), 100, connection()),
        "tcp-idle": timed(connection(end=""), 90, tcp(a, b, "PA", 101, 5)),
        "tcp-lasting": timed(*[one for n in range(40) for one in (tcp(a, b, "A", n, 1), 20)]),
        "udp": [udp(a, b, 100), udp(b, a, 200)], "udp-one-way": [udp(a, b, 100)] * 5, "udp-empty": [udp(a, b, 0), udp(b, a, 0)],
        "udp-ports-zero": [udp((a[0], 0), (b[0], 0), 9)], "udp-same-ends": [udp(a, a, 9)] * 2, "udp-large": [udp(a, b, 1472)] * 3,
        "udp-broadcast": [udp(("0.0.0.0", 68), ("255.255.255.255", 67), 300), udp(b, ("224.0.0.251", 5353), 50)],
        "udp-many": [udp(a, (f"10.2.{n}.1", 53), n) for n in range(1, 200)], "udp-idle": timed(udp(a, b, 1), 70, udp(a, b, 2), 70, udp(b, a, 3)),
        "icmp-echo": [icmp(a, b, type=8, id=3), icmp(b, a, type=0, id=3)] * 3, "icmp-unreachable": [udp(a, b, 8), broken],
        "icmp-kinds": [icmp(a, b, type=kind) for kind in (8, 13, 17, 11, 5)],
        "icmp6-echo": [ether() / ip(a6, b6) / ICMPv6EchoRequest(data=b"q" * 20), ether() / ip(b6, a6) / ICMPv6EchoReply(data=b"q" * 20)],
        "icmp6-neighbour": [ether() / ip(a6, b6) / ICMPv6ND_NS(tgt=b6[0])] * 2,
        "arp": [ether() / ARP(pdst=b[0])] * 3, "arp-and-tcp": [ether() / ARP(pdst=b[0])] + connection(),
        "not-ip": [Dot3(src=MACS[0], dst=MACS[1]) / LLC() / Raw(b"s" * 40), Ether(src=MACS[0], dst=MACS[1], type=0x88cc) / Raw(b"l" * 50)] + connection(),
        "vlan": connection(head=ether([7])), "vlans": connection(head=ether([7])) + connection(head=ether([8])),
        "vlan-double": connection(head=ether([7, 9])), "vlan-provider": connection(head=ether([7, 9], 0x88A8)),
        "vlan-zero": connection(head=ether([0])), "ipv6-tcp": connection(a6, b6), "ipv6-udp": [udp(a6, b6, 33), udp(b6, a6, 44)],
        "ipv6-vlan": connection(a6, b6, head=ether([5])),
        "mpls": connection(head=labels(16)), "mpls-ipv6-3-labels": connection(a6, b6, head=labels(16, 17, 18)),
        "pppoe": connection(head=ether() / PPPoE() / Raw(b"\0\x21")), "pppoe-ipv6": connection(a6, b6, head=ether() / PPPoE() / Raw(b"\0\x57")),
        "ipv6-hop-by-hop": [ether() / ip(a6, b6) / IPv6ExtHdrHopByHop() / UDP(sport=1, dport=2) / Raw(b"h" * 8)] * 2,
        "ipv6-destination": [ether() / ip(a6, b6) / IPv6ExtHdrDestOpt() / UDP(sport=1, dport=2) / Raw(b"h" * 8)] * 2,
        "ipv6-routing": [ether() / ip(a6, b6) / IPv6ExtHdrRouting(addresses=[]) / UDP(sport=1, dport=2) / Raw(b"h" * 8)],
        "fragments": fragment(big, 1000), "fragments-disordered": fragment(big, 1000)[::-1], "fragments-first": fragment(big, 1000)[:1],
        "fragments-later": fragment(big, 1000)[1:], "fragments-and-whole": fragment(big, 1000) + [udp(a, b, 5)],
        "fragments-icmp": fragment(icmp(a, b, type=8) / Raw(b"i" * 3000), 1000), "ipv6-fragments": fragment6(big6, 1280),
        "ip-options": [tcp(a, b, "A", 1, 30, options=[IPOption_Timestamp(flg=0)])] * 2,
        "padding": [Ether(bytes(tcp(a, b, "A", 1)) + b"\0" * 6), Ether(bytes(udp(a, b, 1)) + b"\0" * 17)],
        "jumbo": [tcp(a, b, "A", 1, 8900)] * 2, "gre": [inner(ether() / IP(src="10.8.0.1", dst="10.8.0.2") / GRE())] * 3,
        "gre-key": [inner(ether() / IP(src="10.8.0.1", dst="10.8.0.2") / GRE(key_present=1, key=5))] * 3,
        "vxlan": [ether() / IP(src="10.8.0.1", dst="10.8.0.2") / UDP(sport=9, dport=4789) / VXLAN(vni=5) / one for one in connection()],
        "ip-in-ip": [inner(ether() / IP(src="10.8.0.1", dst="10.8.0.2"))] * 2,
        "sctp": [ether() / ip(a, b) / SCTP(sport=1, dport=2) / Raw(b"t" * 20)] * 2,
        "esp": [ether() / ip(a, b, proto=50) / Raw(b"e" * 40)] * 2, "ospf": [ether() / ip(a, b, proto=89) / Raw(b"o" * 44)],
        "dhcp": [ether() / IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=67) / BOOTP()],
    }
    made |= {f"mixed-{seed}": mixed(seed) for seed in range(4)}
    return {name: packets if packets and isinstance(packets[0], tuple) else timed(packets) for name, packets in made.items()}


def write(path, packets, writer=RawPcapWriter, snap=None, linktype=LINKTYPE_ETHERNET, **options):
    with writer(str(path), **({"linktype": linktype} | options if writer is RawPcapWriter else {})) as out:
        out.write_header(b"")
        for time, packet in packets:
            data = bytes(packet) if linktype == LINKTYPE_ETHERNET else bytes(packet.payload)
            sec, usec = int(time), round(time % 1 * (1_000_000_000 if options.get("nano") else 1_000_000))
            out.write_packet(data[:snap], sec=sec, usec=usec, caplen=len(data[:snap]), wirelen=len(data))


def make(folder: Path) -> list[Path]:
    """Makes all files and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, packets in captures().items():
        files[name] = folder / f"{name}.pcap"
        write(files[name], packets)
    mix = timed(mixed(9), connection(CLIENT6, SERVER6))
    for name, options in [("file-nanoseconds", {"nano": True}), ("file-big-endian", {"endianness": ">"}), ("file-raw-ip", {"linktype": LINKTYPE_RAW}),
                          ("file-snap-96", {"snap": 96}), ("file-snap-60", {"snap": 60}), ("file-pcapng", {"writer": RawPcapNgWriter})]:
        files[name] = folder / f"{name}.pcap"
        write(files[name], mix, **options)
    files["file-empty"] = folder / "file-empty.pcap"
    write(files["file-empty"], [])
    return list(files.values())


if __name__ == "__main__":
    print(*make(Path(sys.argv[1])), sep="\n")
