# SPDX-License-Identifier: MIT OR Apache-2.0
"""Interfaces and hubs: sending, live captures, and ends that come from outside."""

import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from collections.abc import Callable

import captures

import ringtap


@unittest.skipUnless(os.geteuid() == 0, "needs root: interfaces in a network namespace")
class Interfaces(unittest.TestCase):
    def setUp(self) -> None:
        namespace = captures.NetworkNamespace()
        self.addCleanup(namespace.leave)
        self.frames = [captures.udp(number) for number in range(300)]

    def test_injected_packets_arrive_at_the_other_end(self) -> None:
        with ringtap.open("rx0", filter="udp") as capture:
            sent = ringtap.inject("tx0", self.frames)
            length = len(self.frames[0])
            self.assertEqual(sent, {"sent": 300, "refused": 0, "bytes": 300 * length, "refusal": None})
            received = next(capture.batches(packets=300, timeout=10))
            # Each CPU that sends has a lane of its own, and only a lane has an order.
            self.assertEqual(sorted(bytes(packet) for packet in received), sorted(self.frames))
            one = next(packet for packet in received if bytes(packet) == self.frames[5])
            # All kinds of packets, and packets of the capture itself.
            from scapy.layers.l2 import Ether

            kinds = [one, one.data, bytearray(self.frames[5]), Ether(self.frames[5])]
            self.assertEqual(ringtap.inject("tx0", iter(kinds))["sent"], 4)
            for kind in kinds:
                self.assertEqual(ringtap.inject("tx0", kind, qdisc_bypass=True)["sent"], 1)
            again = next(capture.batches(packets=8, timeout=10))
            self.assertEqual([bytes(packet) for packet in again], [self.frames[5]] * 8)

    def test_refused_packets_count_and_errors_say_what_to_do(self) -> None:
        sent = ringtap.inject("tx0", [bytes(60), bytes(5000), bytes(60)])
        self.assertEqual((sent["sent"], sent["refused"]), (2, 1))
        self.assertIn("EMSGSIZE", sent["refusal"])
        with self.assertRaisesRegex(ringtap.SendError, "tx1"):
            ringtap.inject("tx1", [bytes(60)])
        with self.assertRaises(TypeError):
            ringtap.inject("tx0", [7])
        with self.assertRaises(TypeError):
            ringtap.inject("tx0", 7)
        captures.ip("link", "set", "tx0", "down")
        with self.assertRaisesRegex(ringtap.SendError, "tx0"):
            ringtap.inject("tx0", [bytes(60)])

    def test_a_rule_for_a_flow_of_an_interface(self) -> None:
        with ringtap.open("rx0", filter="udp") as capture:
            capture.flow_rule("udp 10.0.0.1:1007 10.0.0.2:53")
            ringtap.inject("tx0", self.frames * 3)
            received = next(capture.batches(packets=897, timeout=10)).arrow(text=True)
            self.assertNotIn(1007, received["src_port"].to_pylist())
            self.assertEqual((len(received), capture.counters["shunted"]), (897, 3))
            self.assertTrue(capture.remove_flow_rule("udp 10.0.0.2:53 10.0.0.1:1007"))

    def test_flows_of_an_interface(self) -> None:
        with ringtap.flows("rx0", filter="udp", idle=0.5, workers=1) as flows:
            ringtap.inject("tx0", self.frames * 2)
            rows = []
            for table in flows:
                rows += table.to_pylist()
                if len(rows) == 300:
                    break
            self.assertEqual({row["forward_packets"] for row in rows}, {2})
            self.assertEqual({row["forward_direction"] for row in rows}, {"ingress"})

    def test_the_end_of_an_interface_is_an_error_of_its_own(self) -> None:
        opens: list[Callable[[], ringtap.Capture | ringtap.Flows]] = [
            lambda: ringtap.open("rx0"),
            lambda: ringtap.flows("rx0"),
        ]
        for open in opens:
            with open() as capture:
                threading.Timer(0.3, captures.ip, ["link", "del", "rx0"]).start()
                with self.assertRaises(ringtap.InterfaceRemovedError):
                    list(capture)
            captures.ip("link", "add", "tx0", "type", "veth", "peer", "name", "rx0")
            captures.ip("link", "set", "rx0", "up")


class Hubs(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.socket = str(pathlib.Path(folder.name) / "hub.sock")
        command = [captures.ringtap_program(), "hub", "-i", "sim:10kpps", "-g", "ids", "--socket", self.socket]
        self.hub = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self.hub.wait)
        self.addCleanup(self.hub.kill)
        until = time.monotonic() + 30
        while not os.path.exists(self.socket) and time.monotonic() < until:
            time.sleep(0.05)

    def test_a_hub_that_dies_is_an_error_and_taken_packets_stay(self) -> None:
        with ringtap.open("hub:ids", socket=self.socket) as capture:
            batch = next(capture.batches(packets=100, timeout=10))
            first = bytes(batch[0])
            self.assertEqual(ringtap.status(self.socket)["groups"][0]["name"], "ids")
            threading.Timer(0.3, self.hub.send_signal, [signal.SIGKILL]).start()
            with self.assertRaises(ringtap.HubLeftError):
                for _packet in capture:
                    pass
            self.assertEqual(bytes(batch[0]), first)
            with self.assertRaises(ringtap.HubError):
                capture.flow_rules()
        with self.assertRaises(ringtap.HubError):
            ringtap.open("hub:ids", socket=self.socket)

    def test_flows_and_streams_of_a_group_end_with_an_error_too(self) -> None:
        import pyarrow

        flows = ringtap.flows("hub:ids", socket=self.socket)
        with ringtap.open("hub:ids", socket=self.socket) as capture:
            threading.Timer(0.3, self.hub.send_signal, [signal.SIGKILL]).start()
            with self.assertRaisesRegex(Exception, "hub"):
                pyarrow.table(capture.reader())
        with self.assertRaises(ringtap.HubLeftError):
            list(flows)


if __name__ == "__main__":
    unittest.main()
