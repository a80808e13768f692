# SPDX-License-Identifier: MIT OR Apache-2.0
"""Accounts of the readers of a trial, of what came out again, and filters of which one matches."""

import json
import unittest

from ringtap_lab import root
from ringtap_lab.manager import contender, filters
from ringtap_lab.manager.accounts import account
from ringtap_lab.manager.battery import Case

KNOWN = contender.load_all([contender.FOLDER, root.ROOT / "checks" / "contenders"])
PACKET, COLLECTED = "AF_PACKET", "ringtap probe, tap exclusive"


def words(received, dropped=0, total=None):
    """The last words of an AF_PACKET reader."""
    total = received * 10 if total is None else total
    return f"received {received} dropped {dropped}\nheaders sum {total}\n"


class Accounts(unittest.TestCase):
    """What all readers of a trial say beside what was sent."""

    def row(self, texts, filters="none", sent=100, received=100):
        case = Case(PACKET, readers=len(texts), filters=filters, flows=len(texts))
        return account(KNOWN[PACKET], case, texts, {"sent": sent, "elapsed_ns": 10**9}, received)

    def faults(self, *arguments, **more):
        return self.row(*arguments, **more)["problems"]

    def test_a_sender_that_sent_nothing_is_a_fault(self):
        self.assertEqual(self.faults([words(0, total=0)], sent=0, received=0), ["nothing was sent"])

    def test_readers_that_all_got_everything_agree(self):
        self.assertEqual(self.faults([words(100), words(100)]), [])

    def test_a_reader_that_hides_a_loss_is_named(self):
        (found,) = self.faults([words(100), words(90)])
        self.assertEqual(
            found, "reader 2 of 2: it says that it lost 0 packets, but 10 are missing"
        )

    def test_a_loss_that_is_told_is_no_fault(self):
        row = self.row([words(100), words(90, 10)])
        self.assertEqual((row["problems"], row["lost"], row["delivered"]), ([], 10, 90))

    def test_headers_that_differ_between_readers_of_the_same_packets_are_a_fault(self):
        (found,) = self.faults([words(100), words(100, total=999)])
        self.assertIn("headers of the same 100 packets", found)
        (found,) = self.faults([words(100, total=0)])
        self.assertIn("have the sums [0]", found)

    def test_a_packet_that_a_filter_does_not_want_is_a_fault(self):
        row = self.row([words(0, 3), words(100)], "one matches")
        self.assertEqual((row["problems"], row["delivered"], row["lost"]), ([], 100, 0))
        (found,) = self.faults([words(1), words(100)], "one matches")
        self.assertEqual(found, "reader 1 of 2: delivered 1 of 0")
        row = self.row([words(0)], "none matches")
        self.assertEqual((row["problems"], row["delivered"], row["lost"]), ([], 100, 0))

    def test_readers_of_one_packet_in_1000_have_all_if_they_have_their_part(self):
        for got, lost, percent in ((2, 0, 0.0), (3, 0, 0.0), (1, 1, 50.0)):
            row = self.row([words(got, lost)], "1 of 1,000", sent=2400, received=2400)
            self.assertEqual((row["problems"], row["lost"], row["loss_percent"]), ([], lost, percent))

    def test_readers_of_parts_have_all_packets_together(self):
        row = self.row([words(51, total=7), words(50, total=8)], "parts", sent=101, received=101)
        self.assertEqual((row["problems"], row["lost"], row["delivered"]), ([], 0, 101))
        row = self.row([words(50), words(49, 1)], "parts")
        self.assertEqual((row["problems"], row["lost"], row["delivered"]), ([], 1, 98))
        (found,) = self.faults([words(50), words(49)], "parts")
        self.assertEqual(found, "reader 2 of 2: it says that it lost 0 packets, but 1 are missing")

    def test_a_device_that_saw_something_else_is_found(self):
        (found,) = self.faults([words(100)], received=99)
        self.assertIn("the device received 99 packets", found)


    def test_a_python_reader_must_have_read_what_its_counters_say(self):
        counters = {"balanced": True, "delivered": 5, "offered": 5, "dropped": {}}
        for size, problems in ((300, []), (299, ["it read 299 bytes of 5 packets of 60"])):
            text = json.dumps(counters) + "\n" + json.dumps({"read": 5, "bytes": size, "seconds": 1.0})
            sent = {"sent": 5, "elapsed_ns": 10**9}
            row = account(KNOWN["batches, numpy()"], Case("any"), [text], sent, 5)
            self.assertEqual(row["problems"], problems)

    def test_numbers_that_are_missing_must_have_been_lost_or_not_sent(self):
        counters = json.dumps({"balanced": True, "delivered": 95, "offered": 100, "dropped": {"overrun": 5}})
        name = "honest readers of a hub"
        fault = "1008 packets' numbers are missing, but it lost 5; 2 were not sent"
        for missing, problems in (("7", []), ("1,008", [fault])):
            text = f"stamps: 95 packets from number 0, {missing} missing, 0 out of order\n{counters}"
            sent = {"sent": 100, "elapsed_ns": 10**9, "refused": 2}
            self.assertEqual(account(KNOWN[name], Case(name), [text], sent, 100)["problems"], problems)

    def test_records_of_flows_must_have_the_bytes_of_their_packets(self):
        for size, problems in ((460, []), (459, ["its records have 459 bytes of 10 packets of 46"])):
            text = json.dumps({"records": 2, "packets": 10, "bytes": size})
            row = account(KNOWN[COLLECTED], Case(COLLECTED), [text], {"sent": 12, "elapsed_ns": 10**9}, 12)
            self.assertEqual((row["problems"], row["lost"]), (problems, 2))

    def test_what_came_out_again_is_delivered_and_a_bridge_must_say_so(self):
        def row(name, out, *texts):
            return account(KNOWN[name], Case(name), texts, {"sent": 100, "elapsed_ns": 10**9}, 100, out)

        # The kernel's bridge says a few things of its own.
        self.assertEqual((row("kernel bridge", 103)["problems"], row("kernel bridge", 103)["delivered"]), ([], 100))
        self.assertEqual(row("kernel bridge", 120)["problems"], ["delivered 120 of 100"])
        line = '{{"type":"counters","offered":{},"delivered":{},"kernel":{},"pool_full":0,"no_verdict":0}}\n'
        # What went back comes last.
        good = row("ringtap bridge", 90, line.format(100, 90, 10) + line.format(0, 0, 0))
        self.assertEqual((good["problems"], good["lost"]), ([], 10))
        found = row("ringtap bridge", 80, line.format(100, 90, 10) + line.format(0, 0, 0))["problems"]
        self.assertEqual(found[0], "it says that it forwarded 90 packets, but 80 came out")


class Filters(unittest.TestCase):
    def test_all_filters_differ_and_one_matches(self):
        for count in (1, 8, 64):
            found = filters.of("one matches", count)
            self.assertEqual(len({one.filter for one in found}), count)
            self.assertEqual([one.part for one in found].count(1), 1)
            self.assertEqual({one.part for one in filters.of("none matches", count)}, {0})


if __name__ == "__main__":
    unittest.main()
