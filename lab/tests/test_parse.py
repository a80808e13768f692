# SPDX-License-Identifier: MIT OR Apache-2.0
"""Last words of each tool, as the tools said them, and what is read from them."""

import unittest

from ringtap_lab.scenarios import parse

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


class Reports(unittest.TestCase):
    def test_ringtap_is_read_from_its_last_counters(self):
        want = parse.Report(delivered=20, lost=10, offered=30, balanced=True)
        self.assertEqual(parse.ringtap(RINGTAP), want)

    def test_sender_is_read_from_its_final_line_only(self):
        self.assertEqual(parse.sender(SENT + "true}\n"), (3_000_000, 2_000_000_000))
        self.assertRaises(parse.ReportError, parse.sender, SENT + "false}\n")
        self.assertRaises(parse.ReportError, parse.sender, "")

    def test_silence_is_an_error_and_not_zero(self):
        for text in ("", "Killed\n", "{not json\n"):
            with self.subTest(text=text):
                self.assertRaises(parse.ReportError, parse.ringtap, text)
