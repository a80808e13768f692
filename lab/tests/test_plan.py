# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plans: the costs behind them, what carries them, the page of the document, and the simulation of a queue."""

import io
import json
import shlex
import subprocess
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from ringtap_lab import root
from ringtap_lab.manager.battery import Case
from ringtap_lab.manager.record import Record
from ringtap_lab.planner import command, costs, model
from ringtap_lab.planner.quantities import IMIX, Mix, Rate

PROGRAM = next((path for path in (root.ringtap(), root.target() / "debug" / "ringtap") if path.exists()), None)
#: Rates in Mpps of a machine on which a packet costs 100 ns and a byte 0.1 ns.
EXACT = {64: 1e3 / 106.4, 512: 1e3 / 151.2, 1500: 1e3 / 250}
HEAD = {"title": "some", "text": ""}


def run(*words: str) -> tuple[int, str, str]:
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        status = command.main(list(words))
    return status, output.getvalue(), errors.getvalue()


def plan(*words: str) -> dict:
    status, output, errors = run(*words, "--json")
    assert status == 0, errors
    return json.loads(output)


def ask(**changes) -> model.Ask:
    plain = {"rate": Rate.read("10Mpps"), "mix": Mix.read("1000"), "readers": 1, "flows": 0.0, "keep_s": 0.0,
             "pause_s": 0.1, "headroom": 2.0, "work_ns": 0.0, "snap": 0}  # fmt: skip
    return model.Ask(**{**plain, **changes})


def row(contender: str, repetition: int, **figures) -> dict:
    case = Case(contender, size=figures.pop("size", 64), readers=figures.pop("readers", 1))
    return {"key": case.key, "case": vars(case), "group": case.group, "repetition": repetition, "problems": [],
            **figures}  # fmt: skip


class CostsOf(unittest.TestCase):
    def record(self, rows: list[dict]) -> Path:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        record = Record.create(Path(folder.name), "some", HEAD)
        for one in rows:
            record.append(one)
        return record.folder

    def test_the_committed_results_hold_the_costs_and_the_line_is_near_each_size(self):
        found = costs.load(None)
        points = costs._points(root.RESULTS / "latest")
        measured = {size: pps / 1e6 for size, pps in costs._sizes(points, costs.CAPTURE).items()}
        self.assertEqual(found.sizes, (64, 1500))
        for size, mpps in measured.items():
            line = found.values["packet_ns"] + found.values["byte_ns"] * size
            self.assertLess(abs(line * mpps / 1e3 - 1), 0.1, size)
            self.assertLessEqual(abs(line * mpps / 1e3 - 1), found.misses + 1e-9, size)

    def test_costs_of_a_record_are_its_own_and_the_rest_is_said_to_be_ours(self):
        rows = [row(costs.CAPTURE, 0, size=size, lost=0, delivered_pps=mpps * 1e6) for size, mpps in EXACT.items()]
        # Neither loss nor a fault may give a cost.
        rows += [row(costs.CAPTURE, 1, size=64, lost=1, delivered_pps=9e9)]
        rows += [row(costs.CAPTURE, 2, size=64, lost=0, delivered_pps=9e9) | {"problems": ["it lied"]}]
        rows += [row(costs.HUB, 0, readers=20, lossless_pps=1e7)]
        folder = self.record(rows)
        found = costs.load(folder)
        self.assertAlmostEqual(found.values["packet_ns"], 100)
        self.assertAlmostEqual(found.values["byte_ns"], 0.1)
        self.assertAlmostEqual(found.values["reader_ns"], 5)
        self.assertEqual(found.readers, 20)
        self.assertIn(str(folder), found.each["packet_ns"].source)
        self.assertIn("bench/results/latest", found.each["record_ns"].source)

    def test_results_without_a_usable_rate_are_refused(self):
        empty = self.record([])
        lossy = self.record([row(costs.CAPTURE, 0, lost=5, delivered_pps=1e6)])
        one = self.record([row(costs.CAPTURE, 0, lost=0, delivered_pps=1e6)])
        (empty / "other.json").write_text('{"capture": {"x": 1}}')
        for path, why in [(empty, "no trial without loss"), (lossy, "no trial without loss"),
                          (one, "at two frame sizes"), (empty / "other.json", "neither a record nor"),
                          (empty / "none", "neither a record nor")]:  # fmt: skip
            status, _, errors = run("--rate", "1Gbps", "--results", str(path))
            self.assertEqual(status, 2)
            self.assertRegex(errors, f"ringtap-lab plan: .*{why}")


class Plans(unittest.TestCase):
    def test_numbers_by_hand(self):
        given = costs.Costs({key: cost for key, cost in costs.load(None).each.items()}, (64, 1500), 16, 0.0, 1500)
        values = {**given.values, "packet_ns": 100.0, "byte_ns": 0.1, "reader_ns": 5.0, "record_ns": 700.0}
        asked = ask(readers=3, keep_s=10.0)
        found = model.needs(asked, {**values, **asked.inputs(), "recorded_size": 1500.0})
        self.assertAlmostEqual(found["queues"], 10e6 * 200e-9 * 2)
        self.assertAlmostEqual(found["reader"], 10e6 * 5e-9 * 2)
        self.assertAlmostEqual(found["recorder"], 10e6 * 700e-9 * 2)
        # 996 bytes are kept, take 1000 in a chunk and 32 in its slot; four consumers have 3/8 of the lent chunks.
        self.assertAlmostEqual(found["pool_bytes"], 0.1 * 10e6 * 1032 * 4 * 8 / 3)
        self.assertAlmostEqual(found["disk_bytes"], 10e6 * (996 + 44) * 10 * 1.0018)
        self.assertEqual(found["probe"], 0)

    def test_a_lane_guarantees_what_is_asked_for_and_a_smaller_one_does_not(self):
        def guaranteed(chunks: int, readers: int) -> int:
            """As docs/hub.md says."""
            lent = chunks - min(64, max(2, chunks // 8))
            return 3 * lent // (8 * readers)

        self.assertEqual(guaranteed(1023, 8), 44)
        for wanted, readers in [(44, 8), (2, 2), (7, 3), (2000, 10)]:
            chunks = model.lane_chunks(wanted, readers)
            self.assertGreaterEqual(guaranteed(chunks, readers), wanted)
            self.assertLess(guaranteed(chunks * 9 // 10, readers), wanted)

    def test_rates_sizes_and_mixes(self):
        self.assertAlmostEqual(Rate.read("10Gbps").pps(64) / 1e6, 14.88, 2)
        self.assertEqual(Rate.read("2Mpps").pps(64), 2e6)
        self.assertEqual(Mix.read("imix").parts, IMIX)
        self.assertEqual(Mix.read("64:1,1500:3").mean(), 1141)
        self.assertEqual(Mix.read("1500").captured(128), 128)

    def test_what_carries_the_answer_is_what_changes_it_most(self):
        few = plan("--rate", "10Gbps", "--work", "100000")["carried_by"]["cores"]
        self.assertIn("work of a reader (--work)", few)
        flows = plan("--rate", "1Mpps", "--mix", "64", "--flows", "1G")["carried_by"]["memory"]
        self.assertEqual(next(iter(flows.items())), ("probe, per flow", 10.0))
        self.assertEqual(list(model.strongest({"a": 1.0, "b": 5.0, "c": 1.0, "d": 0.5})), ["b", "a", "c"])

    def test_what_was_not_measured_is_said(self):
        inside = plan("--rate", "1Gbps", "--mix", "1500", "--keep", "1d")["extrapolated"]
        self.assertEqual(len(inside), 1, inside)
        beyond = " ".join(plan("--rate", "1Tbps", "--mix", "9000", "--readers", "99", "--flows", "20M", "--keep", "1d")
                          ["extrapolated"])  # fmt: skip
        for part in ("network card", "receive queues", "9000 bytes", "101 readers", "20,000,000 flows", "disks"):
            self.assertIn(part, beyond)

    def test_bad_input_is_refused_with_a_sentence(self):
        for words, why in [
            ("--rate fast", "--rate: 'fast' is not a number with a unit"),
            ("--rate 0Gbps", "--rate: '0Gbps' is not between"),
            ("--rate 1Gbps,", "--rate: '' is not"),
            ("--rate 1Gbps --mix 63", "--mix: '63' is not between 64 and 9216"),
            ("--rate 1Gbps --mix 64:0", "--mix: '0' is not between"),
            ("--rate 1Gbps --mix 64.5", "whole number of bytes"),
            ("--rate 1Gbps --readers 0", "--readers: '0' is not between 1"),
            ("--rate 1Gbps --readers 1.5", "--readers: '1.5' is not a whole number"),
            ("--rate 1Gbps --flows nan", "--flows"),
            ("--rate 1Gbps --keep 7", "--keep: '7' is not a number with a unit"),
            ("--rate 1Gbps --headroom 0.5", "--headroom"),
        ]:
            with self.subTest(words):
                status, output, errors = run(*words.split())
                self.assertEqual((status, output), (2, ""))
                self.assertIn(why, errors)

    def test_the_page_is_what_its_command_prints(self):
        page = (root.ROOT / "docs" / "scale.md").read_text()
        words = shlex.split(page.split("```\n")[1])
        self.assertEqual(words[:2], ["ringtap-lab", "plan"])
        for rate in ("1Gbps", "10Gbps", "40Gbps", "100Gbps", "400Gbps"):
            self.assertIn(rate, words[3].split(","))
        self.assertEqual(run(*words[2:])[1], page)


@unittest.skipUnless(PROGRAM, "no ringtap program is built")
class Simulated(unittest.TestCase):
    """One receive queue of the plan in virtual time, while its reader pauses."""

    SIZES = (("64", "10Gbps"), ("imix", "40Gbps"), ("1500", "100Gbps"))

    def lost(self, size: str, rate: str, **divided: int) -> dict:
        """Packets that are lost by reason, with a part of what the plan says."""
        _, device, *flags = plan("--rate", rate, "--mix", size, "--readers", "8", "--pause", "20ms")["simulation"]
        before, chunks = device.rsplit("chunks=", 1)
        device = f"{before}chunks={int(chunks) // divided.get('chunks', 1)}"
        capture = int(flags[-1].removesuffix("pps")) // divided.get("capture", 1)
        done = subprocess.run([PROGRAM, "sim", device, *flags[:-1], f"{capture}pps", "--json"],
                              capture_output=True, text=True, check=True, timeout=120)  # fmt: skip
        found = json.loads(done.stdout)
        self.assertTrue(found["balanced"])
        self.assertGreater(found["offered"], 10_000)
        return found["dropped"]

    def test_the_pool_holds_a_pause_and_a_tenth_of_it_does_not(self):
        for size, rate in self.SIZES:
            with self.subTest(size=size, rate=rate):
                self.assertEqual(sum(self.lost(size, rate).values()), 0)
                self.assertGreater(self.lost(size, rate, chunks=10)["pool_full"], 0)

    def test_a_queue_captures_its_part_and_at_a_tenth_of_the_planned_rate_it_does_not(self):
        for size, rate in self.SIZES:
            with self.subTest(size=size, rate=rate):
                self.assertGreater(self.lost(size, rate, capture=10)["nic"], 0)
