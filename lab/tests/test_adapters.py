# SPDX-License-Identifier: MIT OR Apache-2.0
"""Adapters of engines that may not be installed: their counts, from output in the tools' documented forms."""

from __future__ import annotations

import asyncio
import shutil
import unittest
from types import SimpleNamespace

from ringtap_lab.manager import battery, contender, inventory
from ringtap_lab.manager.counts import CountError
from ringtap_lab.manager.runner import Runner

KNOWN = contender.load_all([contender.FOLDER])
PFCOUNT = """\
Using PF_RING v.8.7.0
Capturing from eth1 [mac: 02:00:00:00:00:02][if_index: 3][speed: 10000Mb/s]
=========================
Absolute Stats: [900 pkts total][0 pkts dropped][0.0% dropped]
[900 pkts rcvd][54'000 bytes rcvd]
=========================

Leaving...
=========================
Absolute Stats: [1'234'567 pkts total][34'567 pkts dropped][2.8% dropped]
[1'200'000 pkts rcvd][72'000'000 bytes rcvd][600'000.00 pkt/sec][288.00 Mbit/sec]
=========================
Actual Stats: [400'000 pkts rcvd][1'000.01 ms][399'996.00 pps][0.19 Gbps]
=========================
"""
PFCOUNT_6 = """\
Using PF_RING v.6.0.0
Capturing from dna0 [02:00:00:00:00:02][ifIndex: 2]
=========================
Absolute Stats: [5000 pkts rcvd][12 pkts dropped]
Total Pkts=5012/Dropped=0.2 %
5'000 pkts - 300'000 bytes
=========================
"""
ZCOUNT = """\
=========================
Absolute Stats: 14'880'000 pkts (120 drops) - 1'249'920'000 bytes
Actual Stats: 14'880'000.00 pps (120.00 drops) - 9.99 Gbps
=========================
"""
PKT_GEN = """\
123.000000 main [3270] Ready...
123.456789 receiver_body [1673] reading from netmap:eth1 fd 3 main_fd 3
123.456790 main_thread [2639] 14.880 Mpps (14.883 Mpkts 7.142 Gbps in 1000163 usec) 452.11 avg_batch 1024 min_space
Received 29760123 packets 1785607380 bytes 65823 events 60 bytes each in 2.00 seconds.
Speed: 14.880 Mpps Bandwidth: 7.142 Gbps (raw 9.999 Gbps). Average batch: 452.12 pkts
"""
PFQ = """\
----------- capture started ------------
recv: 10 20  -> 30
lost: 0 0  -> 0
drop: 0 0  -> 0
max_batch: 1 1
capture: 30 pkt/sec
recv: 1000 2000  -> 3000
lost: 1 2  -> 3
drop: 0 4  -> 4
max_batch: 12 9
capture: 2970 pkt/sec
"""
SNF = """\
snf_recv ready to receive

Packets received,    app:        2000, ring: 2010
Total bytes received,  app:        120000 (0 MB)
Average Packet Length:    60 bytes
Dropped, NIC overflow:    3
Dropped, ring overflow:   7
Dropped, bad:             0
"""
NAPATECH = """\
tcpdump: listening on napa_ca, link-type EN10MB (Ethernet), snapshot length 262144 bytes
71680 packets captured
71700 packets received by filter
20 packets dropped by kernel
5 packets dropped by interface
"""
SURICATA = """\
Notice: threads: Threads created -> W: 1 FM: 1 FR: 1   Engine started.
Notice: suricata: Signal Received.  Stopping engine.
Notice: device: rt1: packets: 3000, drops: 100 (3.33%), invalid chksum: 0
"""
SURICATA_6 = """\
28/11/2026 -- 16:00:00 - <Notice> - all 1 packet processing threads, 4 management threads initialized, engine started.
28/11/2026 -- 16:00:01 - <Notice> - Stats for 'rt1':  pkts: 3000, drop: 100 (3.33%), invalid chksum: 0
"""
SURICATA_PCAP = """\
Notice: threads: Threads created -> W: 1 FM: 1 FR: 1   Engine started.
Info: pcap: tap:rt1?exclusive&pool=64MiB: packets 6151975, bytes 369118500
Info: pcap: tap:rt1?exclusive&pool=64MiB: pcap total:7028737 recv:6151975 drop:876762 (12.5%)
Notice: device: tap:rt1?exclusive&pool=64MiB: packets: 6151975, drops: 556208 (9.04%), invalid chksum: 0
"""
PDUMP = """\
 core (1), capture for (1) tuples
 - port 0 device (net_af_xdp0) queue 0
##### PDUMP DEBUG STATS #####
 -packets dequeued:\t\t\t30000
 -packets transmitted to vdev:\t\t29990
 -packets freed:\t\t\t10
"""
OUTPUTS = {
    "Suricata": (SURICATA, 2900, 100),
    "Suricata on Ringtap, exclusive tap": (SURICATA_PCAP, 6_151_975, 876_762),
    "dpdk-pdump": (PDUMP, 29_990, None),
    "PF_RING pfcount": (PFCOUNT, 1_200_000, 34_567),
    "PF_RING DNA": (PFCOUNT_6, 5000, 12),
    "PF_RING ZC zcount": (ZCOUNT, 14_880_000, 120),
    "netmap pkt-gen": (PKT_GEN, 29_760_123, None),
    "PFQ pfq-counters": (PFQ, 3000, 7),
    "Sniffer10G": (SNF, 2000, 10),
    "Napatech, tcpdump": (NAPATECH, 71_680, 25),
}


class Adapters(unittest.TestCase):
    def test_counts_are_read_as_each_tool_says_them(self):
        for name, (text, delivered, lost) in OUTPUTS.items():
            with self.subTest(name):
                counts = KNOWN[name].counts.read(text)
                self.assertEqual((counts["delivered"], counts.get("lost")), (delivered, lost))
                if KNOWN[name].ready.line:
                    self.assertIn(KNOWN[name].ready.line, text)
        self.assertEqual(KNOWN["Suricata"].counts.read(SURICATA_6), {"delivered": 2900, "lost": 100})
        self.assertIn(KNOWN["Suricata"].ready.line, SURICATA_6)

    def test_output_without_counts_is_an_error(self):
        for name in OUTPUTS:
            with self.subTest(name), self.assertRaises(CountError):
                KNOWN[name].counts.read("Leaving...\n")

    def test_what_is_not_installed_is_told_with_what_installs_it(self):
        cases = tuple((battery.Case(name), 1) for name in OUTPUTS)
        wanted = battery.Battery("b", "b", "ringtap send", cases, "")

        async def ask(_what: str, programs: list[str]) -> dict:
            return {program: shutil.which(program) for program in programs}

        agent = SimpleNamespace(ask=ask, host=SimpleNamespace(programs={}))
        bench = SimpleNamespace(injector=agent, sensor=agent)
        missing = asyncio.run(Runner(wanted, inventory.local({}), KNOWN, print).missing(bench))
        for name in OUTPUTS:
            if not all(shutil.which(need) for need in KNOWN[name].needs):
                self.assertRegex(missing[name], f"^not installed here: .+: {KNOWN[name].install[:9]}")


if __name__ == "__main__":
    unittest.main()
