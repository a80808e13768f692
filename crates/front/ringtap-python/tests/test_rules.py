# SPDX-License-Identifier: MIT OR Apache-2.0
"""Flow rules and ends of flows."""

import _thread
import threading
import unittest
from collections.abc import Callable

import ringtap


def a_flow(capture: ringtap.Capture) -> str:
    """The first flow of a capture."""
    first = next(capture.batches(packets=1, timeout=10)).arrow(text=True).to_pylist()[0]
    return f"udp {first['src']}:{first['src_port']} {first['dst']}:{first['dst_port']}"


class Rules(unittest.TestCase):
    def setUp(self) -> None:
        self.capture = ringtap.open("sim:10kpps?flows=4")
        self.addCleanup(self.capture.close)

    def read_until(self, name: str, least: int) -> int:
        """Reads until a counter has this value; returns the number of packets."""
        packets = 0
        for batch in self.capture.batches(timeout=0.1):
            packets += len(batch)
            if self.capture.counters[name] >= least:
                return packets
        self.fail(f"the capture ended before {least} packets were {name}")

    def test_a_rule_withholds_a_flow_until_it_is_removed(self) -> None:
        flow = a_flow(self.capture)
        self.capture.flow_rule(flow)
        self.read_until("shunted", 100)
        rules = self.capture.flow_rules()
        self.assertEqual([(rule["flow"], rule["action"]) for rule in rules], [(flow, "ignore")])
        self.assertTrue(self.capture.remove_flow_rule(flow))
        self.assertFalse(self.capture.remove_flow_rule(flow))
        self.assertEqual(self.capture.flow_rules(), [])
        self.assertEqual([event["why"] for event in self.capture.flow_events(10).events], ["removed"])

    def test_a_cutoff_keeps_the_first_packets(self) -> None:
        flow = a_flow(self.capture)
        self.capture.flow_rule(flow, cutoff="20 packets", seconds=60)
        self.read_until("shunted", 100)
        rule = self.capture.flow_rules()[0]
        self.assertEqual((rule["action"], rule["packets"]), ("cutoff", 20))
        self.assertLessEqual(rule["lasts_ms"], 60_000)

    def test_a_cutoff_of_all_flows_is_an_option(self) -> None:
        with ringtap.open("sim:10kpps?flows=4", cutoff="20 packets") as self.capture:
            self.assertLessEqual(self.read_until("shunted", 1000), 80)

    def test_what_is_no_rule_is_refused_in_a_sentence(self) -> None:
        for call, text in [
            (lambda: self.capture.flow_rule("tcp 10.0.0.1:80"), "flow"),
            (lambda: self.capture.flow_rule("tcp 10.0.0.1 10.0.0.2"), "ports"),
            (lambda: self.capture.remove_flow_rule("nothing"), "protocol"),
            (lambda: self.capture.flow_rule("udp 10.0.0.1:1 10.0.0.2:2", cutoff="much"), "much"),
            (lambda: ringtap.open("sim:1kpps", cutoff="much"), "much"),
        ]:
            with self.assertRaises(ringtap.RuleError) as raised:
                call()
            self.assertIn(text, str(raised.exception))
        with self.assertRaises(ValueError):
            self.capture.flow_rule("udp 10.0.0.1:1 10.0.0.2:2", seconds=-1)

    def test_control_c_ends_a_wait_for_events(self) -> None:
        threading.Timer(0.3, _thread.interrupt_main).start()
        with self.assertRaises(KeyboardInterrupt):
            self.capture.flow_events(60)
        self.assertEqual(self.capture.flow_events(), ([], 0))

    def test_a_closed_capture_says_so(self) -> None:
        self.capture.close()
        calls: list[Callable[[], object]] = [
            lambda: self.capture.flow_rule("udp 10.0.0.1:1 10.0.0.2:2"),
            lambda: self.capture.remove_flow_rule("udp 10.0.0.1:1 10.0.0.2:2"),
            self.capture.flow_rules,
            self.capture.flow_events,
            lambda: next(self.capture.batches()),
            lambda: self.capture.record("/tmp/never.pcapng"),
            lambda: self.capture.facts,
            self.capture.explain,
        ]
        for call in calls:
            with self.assertRaises(ringtap.ClosedError):
                call()


if __name__ == "__main__":
    unittest.main()
