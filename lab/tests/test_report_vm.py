# SPDX-License-Identifier: MIT OR Apache-2.0
"""The page and the goals of a measurement of virtual machines."""

import unittest

from ringtap_lab.scenarios import report_vm
from ringtap_lab.scenarios.report_vm import ONE, TWO, VIRTIO


def rate(pps: float) -> dict:
    return {"lossless_pps": pps, "max_pps": pps, "limited": False, "trial": {}}


class Goals(unittest.TestCase):
    def verdicts(self, result: dict) -> dict[str, str]:
        return {one["goal"]: one["verdict"] for one in report_vm.goals(result)}

    def test_nothing_measured_is_neither_met_nor_missed(self) -> None:
        self.assertEqual(set(self.verdicts({}).values()), {"not measured"})

    def test_ratios_have_a_verdict_and_the_page_shows_them(self) -> None:
        result = {
            "rates": {"64": {ONE: rate(90e3), TWO: rate(40e3), VIRTIO: rate(10e3)}},
            "idle": {"without Ringtap": {"guest": 5}, ONE: {"guest": 7, "hub": 0, "vm attach": 0}},
        }
        goals = self.verdicts(result)
        self.assertEqual(goals[f"64 bytes: {ONE} against virtio-net"], "met")
        self.assertEqual(
            goals[f"64 bytes: {TWO}, packets of both VMs together against {ONE}"], "MISSED"
        )
        self.assertEqual(goals["idle: processor time of hub"], "met")
        result |= {
            "line": {
                f"64 B, {way}, all": {
                    "bytes": 64, "wanted": "all", "offered_pps": 1e6, "captured_share": share,
                    "host_cpu_percent": 10.2, "guest_cpu_percent": 50.6,
                }
                for way, share in ((VIRTIO, 0.12), ("1 VM", 1.0))
            },
            "goals": report_vm.goals(result),
            "machine": {"cpu": "C", "cores": 2, "kernel": "K", "system": "S"},
            "settings": {"trial_seconds": 3.0, "ring_mib": 16},
            "date": "D", "revision": "R", "command": "X", "acceleration": "tcg", "problems": [],
            "measured": {"rates": "D"},
        }  # fmt: skip
        page = report_vm.markdown(result)
        for text in ("emulates the processor", "90,000", "9 x", "MISSED", "12.00", "10 + 51"):
            self.assertIn(text, page)
