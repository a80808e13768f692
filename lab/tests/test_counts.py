# SPDX-License-Identifier: MIT OR Apache-2.0
"""Last words of each contender, as the programs said them, and what its description reads from them."""

import unittest

from ringtap_lab.manager import contender, service
from ringtap_lab.manager.accounts import account, same_headers
from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.counts import CountError, contradictions, figure, last_json

KNOWN = contender.load_all([contender.FOLDER])

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
latency_ns p10 20000 p25 25000 median 31000 p75 40000 p90 60000 p99 95000 p999 200000 max 210000
"""
SENT = (
    '{"time_ns":1,"device":"rt0","method":"live","elapsed_ns":2000000000,"sent":3000000,'
    '"refused":0,"bytes":180000000,"rate_pps":1500000.0,"rate_bps":1.0,"refusal":null,"final":'
)


def read(name: str, text: str) -> dict[str, int]:
    return KNOWN[name].counts.read(text)


class Counts(unittest.TestCase):
    def test_each_program_is_read_as_it_says_it(self):
        for name, text, delivered, lost in [
            ("tcpdump", TCPDUMP, 71680, 20),
            ("tcpdump", "1 packet captured\n1 packet received by filter\n0 packets dropped by kernel\n", 1, 0),
            ("dumpcap /dev/null", DUMPCAP, 90112, 60),
            ("netsniff-ng", NETSNIFF, 87936, 128),
            ("DPDK testpmd", TESTPMD, 7168196, 24385),
            ("tap exclusive", RINGTAP, 20, 10),
            ("AF_PACKET", "received 5000 dropped 3\nheaders sum 9\n", 5000, 3),
        ]:
            with self.subTest(name):
                found = read(name, text)
                self.assertEqual((found["delivered"], found["lost"]), (delivered, lost))
        self.assertEqual(read("tap exclusive", RINGTAP)["offered"], 30)
        self.assertEqual(read("XDP_DROP floor", '{"dropped":7}\nready\n'), {"delivered": 7, "offered": 7})

    def test_silence_is_an_error_and_not_zero(self):
        # A bridge of the kernel says nothing.
        for one in (one for one in KNOWN.values() if one.counts.terms or one.figures):
            for text in ("", "Killed\n", "{not json\n", '{"balanced": true}\n', '{"sent": "x"}', "[" * 100_000):
                with self.subTest(name=one.name, text=text[:20]), self.assertRaises(CountError):
                    _ = one.counts.read(text) or [figure(text, pattern) for pattern in one.figures.values()]

    def test_a_number_that_cannot_be_a_count_is_an_error(self):
        long = "9" * 5000
        for value in (long, "-1", "1e400", "NaN", "Infinity", '"x"', "null", "[]", str(1 << 64)):
            text = f'{{"balanced": true, "offered": 1, "delivered": {value}, "dropped": {{}}}}\n'
            with self.subTest(value[:10]), self.assertRaises(CountError):
                read("tap exclusive", text)
        for dropped in ("[]", "7", '{"pool_full": null}', '{"pool_full": {}}'):
            text = f'{{"balanced": true, "offered": 1, "delivered": 1, "dropped": {dropped}}}\n'
            with self.subTest(dropped), self.assertRaises(CountError):
                read("tap exclusive", text)
        with self.assertRaises(CountError):
            read("tcpdump", f"{long} packets captured\n0 packets dropped by kernel\n")

    def test_only_the_last_report_counts_and_deep_nonsense_is_skipped(self):
        text = '{"sent": 1}\n{"sent": 2}\n{"other": 3}\n{"a":' + "[" * 100_000
        self.assertEqual(last_json(text, "sent"), {"sent": 2})
        want = {"sent": 3_000_000, "elapsed_ns": 2 * 10**9, "final": 1}
        self.assertEqual(read("ringtap send", SENT + "true}\n"), want)
        self.assertEqual(read("ringtap send", SENT + "false}\n")["final"], 0)


WRK = """Running 2s test @ http://198.51.100.2:8080/
    Latency   214.77us   87.25us   2.17ms   85.14%
  73102 requests in 2.00s, 88.38MB read
Requests/sec:  36451.79
Transfer/sec:     43.07MB
"""
IPERF = """[  5]   0.00-1.00   sec  1.03 GBytes  8860344 Kbits/sec    0   2.39 MBytes
[  5]   0.00-1.00   sec  1.03 GBytes  8860344 Kbits/sec    0             sender
[  5]   0.00-1.00   sec  1.03 GBytes  8855859 Kbits/sec                  receiver
"""


class Services(unittest.TestCase):
    def test_what_each_client_says_is_read(self):
        for name, text, figures in [
            ("web server", WRK, {"requests_ps": 36451}),
            ("TCP to the host", IPERF, {"kbits_ps": 8855859}),
            ("TCP from the host", IPERF, {"kbits_ps": 8855859}),
            ("ping", "mean 6123 p99 12000\n", {"rtt_p99_ns": 12000, "rtt_mean_ns": 6123}),
        ]:
            one = KNOWN[name]
            self.assertEqual({key: figure(text, pattern) for key, pattern in one.figures.items()}, figures)
            for pattern in one.figures.values():
                self.assertRaises(CountError, figure, "", pattern)

    def account(self, readers: list[str], filters: str = "none", passed: int = 100) -> dict:
        case = Case("AF_PACKET", service="web server", readers=len(readers), filters=filters)
        return service.account(KNOWN["AF_PACKET"], case, readers, {"answers": 5}, passed)

    def test_a_row_has_the_clients_figures_and_the_loss_of_the_worst_reader(self):
        row = self.account(["received 90 dropped 10\n", "received 50 dropped 50\n"])
        self.assertEqual((row["answers"], row["served"], row["problems"]), (5, {"answers": 5}, []))
        self.assertEqual((row["delivered"], row["lost"], row["loss_percent"]), (50, 60, 50.0))

    def test_what_cannot_be_true_is_found(self):
        for readers, filters, passed, why in [
            (["received 101 dropped 0\n"], "none", 100, "reader 1 of 1: delivered 101 packets of 100"),
            (["received 0 dropped 0\n"], "none", 100, "reader 1 of 1: delivered nothing"),
            (["received 0 dropped 0\n", "received 1 dropped 0\n"], "none matches", 100,
             "reader 2 of 2: delivered 1 packets that its filter does not pass"),
        ]:  # fmt: skip
            self.assertEqual(self.account(readers, filters, passed)["problems"], [why])
        self.assertEqual(self.account(["received 0 dropped 7\n"], "none matches")["lost"], 0)


class Contradictions(unittest.TestCase):
    def test_accounts_that_agree(self):
        self.assertEqual(contradictions({"delivered": 90, "lost": 10, "offered": 100, "balanced": 1}, 100, 100), [])
        self.assertEqual(contradictions({"delivered": 90, "lost": 7, "shunted": 3}, 100, None), [])

    def test_a_lie_of_a_thousandth_is_found(self):
        (found,) = contradictions({"delivered": 999, "lost": 0}, 1000, 1000)
        self.assertEqual(found, "it says that it lost 0 packets, but 1 are missing")
        (found,) = contradictions({"delivered": 1001, "lost": 0}, 1000, 1000)
        self.assertEqual(found, "delivered 1001 of 1000")

    def test_what_the_nic_dropped_is_lost_or_unknown_to_a_contender(self):
        for counts in ({"delivered": 90, "lost": 10, "offered": 100}, {"delivered": 90, "lost": 3, "offered": 93}):
            self.assertEqual(contradictions(counts, 100, 100, nic_dropped=7), [])
        for counts in ({"delivered": 90, "lost": 4}, {"delivered": 90, "lost": 10, "offered": 94}):
            self.assertEqual(len(contradictions(counts, 100, 100, nic_dropped=7)), 1)

    def test_a_device_that_saw_something_else_and_counters_that_do_not_balance_are_found(self):
        found = contradictions({"delivered": 100, "lost": 0, "offered": 101, "balanced": 0}, 100, 99)
        self.assertEqual(len(found), 3)

    def test_readers_of_the_same_packets_read_the_same_headers(self):
        each = [{"delivered": 5}, {"delivered": 5}, {"delivered": 4}]
        self.assertEqual(same_headers(each, [{"header_sum": 7}, {"header_sum": 7}, {"header_sum": 6}]), [])
        self.assertEqual(len(same_headers(each, [{"header_sum": 7}, {"header_sum": 8}, {"header_sum": 6}])), 1)
        self.assertEqual(len(same_headers(each, [{"header_sum": 0}] * 3)), 2)

    def test_the_worst_reader_decides_and_losses_are_added(self):
        words = ["received 100 dropped 0\nheaders sum 5\n", "received 90 dropped 10\nheaders sum 4\n"]
        sent = {"sent": 100, "elapsed_ns": 10**9}
        row = account(KNOWN["AF_PACKET"], Case("AF_PACKET"), words, sent, 100)
        self.assertEqual((row["delivered"], row["lost"], row["loss_percent"], row["problems"]), (90, 10, 10.0, []))
        words[1] = words[1].replace("10\n", "9\n")
        row = account(KNOWN["AF_PACKET"], Case("AF_PACKET"), words, sent, 100)
        self.assertEqual(row["problems"], ["reader 2 of 2: it says that it lost 9 packets, but 10 are missing"])
