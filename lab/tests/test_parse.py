# SPDX-License-Identifier: MIT OR Apache-2.0
"""Last words of each tool, as the tools said them, and what is read from them."""

import unittest

from ringtap_lab.scenarios import parse, pool, simulated

TCPDUMP = """\
tcpdump: listening on rt1, link-type EN10MB (Ethernet), snapshot length 262144 bytes
71680 packets captured
71700 packets received by filter
20 packets dropped by kernel
"""
DUMPCAP = """\
Capturing on 'rt1'
File: /dev/shm/dumpcap.pcapng
Packets captured: 90112
Packets received/dropped on interface 'rt1': 90112/60 (pcap:50/dumpcap:10/flushed:0/ps_ifdrop:0) (99.9%)
"""
NETSNIFF = """\
Running! Hang up with ^C!

       88064  packets incoming (64 unread on exit)
       88000  packets passed filter
          64  packets failed filter (out of space)
      0.0727% packet droprate
           2  sec, 744165 usec in total
"""
TESTPMD = """\
  ---------------------- Forward statistics for port 0  ----------------------
  RX-packets: 9              RX-dropped: 1             RX-total: 10

  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++
  RX-packets: 7168196        RX-dropped: 24385         RX-total: 7192581
  TX-packets: 0              TX-dropped: 0             TX-total: 0
"""
RINGTAP = """\
{"time_ns":1,"device":"tap:rt1","lane":0,"reader":"count","offered":9,"delivered":9,"filtered":0,"bytes":540,"dropped":{"nic":0,"kernel":0,"pool_full":0,"overrun":0},"balanced":true}
{"time_ns":2,"device":"tap:rt1","lane":null,"reader":"count","offered":30,"delivered":20,"filtered":0,"bytes":1200,"dropped":{"nic":1,"kernel":2,"pool_full":3,"overrun":4},"balanced":true}

ringtap: a note on standard error
latency_ns median 31000 p99 95000 max 210000
"""
SENT = (
    '{"time_ns":1,"device":"rt0","method":"live","elapsed_ns":2000000000,"sent":3000000,'
    '"refused":0,"bytes":180000000,"rate_pps":1500000.0,"rate_bps":1.0,"refusal":null,"final":'
)
POOL = """\
{"benchmark":"pool","chunks":500,"rounds":5,"median_mpps":160.1,"min_mpps":150.2,"max_mpps":170.3}
pool of 500 chunks: 160 Mpps (median of 5, 150 to 170), at most 9 chunks in use
{"benchmark":"pool","chunks":5000,"rounds":5,"median_mpps":120.0,"min_mpps":110.0,"max_mpps":130.0}
"""


class Reports(unittest.TestCase):
    def test_tcpdump(self):
        self.assertEqual(parse.tcpdump(TCPDUMP), parse.Report(delivered=71680, lost=20))

    def test_tcpdump_says_packet_of_one(self):
        text = "1 packet captured\n1 packet received by filter\n0 packets dropped by kernel\n"
        self.assertEqual(parse.tcpdump(text), parse.Report(delivered=1, lost=0))

    def test_dumpcap_loses_in_the_kernel_and_inside(self):
        self.assertEqual(parse.dumpcap(DUMPCAP), parse.Report(delivered=90112, lost=60))

    def test_ringtap_is_read_from_its_last_counters(self):
        want = parse.Report(delivered=20, lost=10, offered=30, balanced=True)
        self.assertEqual(parse.ringtap(RINGTAP), want)

    def test_floor_delivers_what_it_drops(self):
        want = parse.Report(delivered=7, lost=0, offered=7)
        self.assertEqual(parse.floor('{"dropped":7}\nready\n'), want)

    def test_sender_is_read_from_its_final_line_only(self):
        self.assertEqual(parse.sender(SENT + "true}\n"), (3_000_000, 2_000_000_000))
        self.assertRaises(parse.ReportError, parse.sender, SENT + "false}\n")
        self.assertRaises(parse.ReportError, parse.sender, "")

    def test_latency(self):
        want = {"median_ns": 31000, "p99_ns": 95000, "max_ns": 210000}
        self.assertEqual(parse.latency(RINGTAP), want)

    def test_libpcap_reader(self):
        want = parse.Report(delivered=5000, lost=3)
        self.assertEqual(parse.libpcap_reader("received 5000 dropped 3\n"), want)

    def test_silence_is_an_error_and_not_zero(self):
        every = [parse.tcpdump, parse.dumpcap, parse.ringtap,
                 parse.floor, parse.latency, parse.libpcap_reader]  # fmt: skip
        for read in every:
            for text in ("", "Killed\n", "{not json\n"):
                with self.subTest(read=read.__name__, text=text):
                    self.assertRaises(parse.ReportError, read, text)

    def test_sim_bench_gives_a_spread_or_an_error(self):
        line = ('{"benchmark":"sim","chunks":500,"packets_per_chunk":256,"median_mpps":104.0,'
                '"min_mpps":88.0,"max_mpps":106.0}')
        found = simulated.read(f"{line}\nsimulated NIC: 104 Mpps\n")
        spread = {"median": 104.0, "min": 88.0, "max": 106.0}
        self.assertEqual(found["(256,500)"]["summary"]["mpps"], spread)
        with self.assertRaises(ValueError):
            simulated.read("nothing")

    def test_pool_bench_gives_a_spread_for_every_size(self):
        found = pool.read(POOL)
        self.assertEqual(list(found), ["500", "5000"])
        want = {"median": 160.1, "min": 150.2, "max": 170.3}
        self.assertEqual(found["500"]["summary"]["mpps"], want)

    def test_a_size_that_pool_bench_leaves_out_is_an_error(self):
        self.assertRaises(ValueError, pool.read, POOL.splitlines()[0])
