# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whole runs with a sender and contenders in Python: in the lab's namespaces, and over SSH servers in them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from ringtap_lab.agent.processes import children
from ringtap_lab.formatters import tables
from ringtap_lab.manager import inventory, verify
from ringtap_lab.manager.record import Record

LAB = Path(__file__).resolve().parents[1]
FAKES = LAB / "tests" / "fakes"
LIMIT_S = 120
#: An interrupted run ends its daemons in less.
INTERRUPTED_S = 10
LIARS = ["hides", "boasts", "dies", "silent", "never-ends", "never-ready", "sums"]
HONEST = """
sender = "fake send"
contenders = ["honest"]
rate = "2kpps"
seconds = 0.2
"""


def able() -> bool:
    return os.geteuid() == 0 and (os.cpu_count() or 1) >= 2 and all(map(shutil.which, ("ip", "ethtool", "sysctl")))


@unittest.skipUnless(able(), "needs root, two cores, iproute2 and ethtool")
class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start(self, text: str, *words: str, program: tuple[str, ...] = ("-m", "ringtap_lab")) -> subprocess.Popen:
        """`ringtap-lab run` of a battery with this text."""
        battery = self.folder / "battery.toml"
        battery.write_text(text)
        command = [sys.executable, *program, "run", str(battery), "--contenders", str(FAKES),
                   "--records", str(self.folder / "records"), *words]  # fmt: skip
        environment = os.environ | {"PYTHONPATH": str(LAB), "CARGO_TARGET_DIR": str(self.folder)}
        return subprocess.Popen(
            command, cwd="/", env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def run_whole(self, text: str, *words: str, program: tuple[str, ...] = ("-m", "ringtap_lab")) -> tuple[int, str]:
        process = self.start(text, *words, program=program)
        output, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, output

    def record(self) -> Record:
        (folder,) = (self.folder / "records").iterdir()
        return Record(folder)

    def namespaces(self, processes: list[int]) -> set[str]:
        """Network namespaces of these processes, without our own."""
        found = set()
        for process in processes:
            try:
                found.add(os.readlink(f"/proc/{process}/ns/net"))
            except OSError:
                pass  # it has ended meanwhile
        return found - {os.readlink("/proc/self/ns/net")}

    def below(self, process: int) -> list[int]:
        """All descendants of a process."""
        each = children(process)
        return each + [one for child in each for one in self.below(child)]

    def gone(self, namespaces: set[str]) -> bool:
        every = [int(one.name) for one in Path("/proc").glob("[0-9]*")]
        return not namespaces & self.namespaces(every)

    def test_liars_are_at_fault_in_every_repetition_and_the_honest_one_in_none(self):
        names = json.dumps(["honest", "floods", *LIARS, "absent"])
        text = f'{HONEST}repetitions = 2\nreaders = 2\n[[case]]\ncontenders = {names}\n'
        status, output = self.run_whole(text)
        self.assertEqual(status, 1, output)
        rows = self.record().rows()
        self.assertEqual(len(rows), 2 * (2 + len(LIARS)), output)
        at_fault = {name: [bool(row["problems"]) for row in rows if row["case"]["contender"] == name]
                    for name in ["honest", "floods", *LIARS]}  # fmt: skip
        wanted = {name: [name in LIARS] * 2 for name in at_fault}
        self.assertEqual(at_fault, wanted, output)
        # The lock that it held was free when the teardown asked for it.
        (problem,) = {one for row in rows if row["case"]["contender"] == "never-ready" for one in row["problems"]}
        self.assertIn("not ready after", problem)
        self.assertIn("absent: not installed here: no-such-program: apt install no-such-package", output)
        for name in ("page.html", "record.md", "record.json", "rows.csv"):
            self.assertTrue((self.record().folder / name).stat().st_size, name)

    def test_the_highest_rate_without_loss_is_searched(self):
        status, output = self.run_whole(HONEST + 'method = "lossless"\nrepetitions = 1\n')
        (row,) = self.record().rows()
        self.assertEqual((status, row["problems"]), (0, []), output)
        self.assertGreater(row["lossless_pps"], 1000)
        # A little above the rate of the case.
        self.assertEqual(row["trials"][0]["rate"], "2240pps")
        self.assertEqual(row["goals"][0]["conditional_throughput_pps"], row["lossless_pps"])
        self.assertEqual(verify.faults(self.record().folder), ([], []))

    def test_a_program_is_run_to_its_end_on_a_file_that_was_made(self):
        text = 'sender = "fake send"\nmethod = "command"\ncontenders = ["works", "works badly"]\nrepetitions = 2\n'
        make = 'file = "made.pcap"\n[[make]]\nname = "made.pcap"\nkind = "small"\nflows = 3\npackets = 100\n'
        status, output = self.run_whole(text + make)
        rows = {name: [row for row in self.record().rows() if row["case"]["contender"] == name]
                for name in ("works", "works badly")}  # fmt: skip
        self.assertEqual(status, 1, output)
        self.assertEqual([row["problems"] for row in rows["works"]], [[], []], output)
        self.assertEqual([row["problems"] for row in rows["works badly"]], [["delivered is 99, 100 is right"]] * 2)
        first = rows["works"][0]
        self.assertEqual((first["seven"], first["off_percent"], first["source_bytes"]), (7, 0.0, 24 + 100 * 76))
        self.assertAlmostEqual(first["file_pps"] * first["seconds"], 100)
        faults = [one for one in verify.faults(self.record().folder)[0] if "no version" not in one]
        self.assertEqual([re.sub(r"row \d+", "row", one) for one in faults],
                         ["rows.jsonl: row: at fault: delivered is 99, 100 is right"] * 2)  # fmt: skip

    def test_what_comes_out_of_the_sensor_again_is_delivered(self):
        text = HONEST.replace("honest", "forwards") + 'repetitions = 2\nreceiver = "honest"\n'
        status, output = self.run_whole(text)
        rows = self.record().rows()
        self.assertEqual((status, [row["delivered"] for row in rows]), (0, [400, 400]), output)

    def test_without_traffic_nothing_is_lost_and_time_is_counted(self):
        status, output = self.run_whole(HONEST.replace("2kpps", "none") + "repetitions = 1\n")
        (row,) = self.record().rows()
        self.assertEqual((status, row["offered"], row["delivered"], row["elapsed_ns"]), (0, 0, 0, 200_000_000), output)
        self.assertLess(row["cpu_percent"], 100)

    def test_a_service_is_asked_beside_contenders_and_liars_are_at_fault(self):
        names = ["nothing", "honest", "dies", "silent"]
        text = f'service = "fake service"\nseconds = 0.2\nrepetitions = 2\ncontenders = {json.dumps(names)}\n'
        status, output = self.run_whole(text)
        rows = self.record().rows()
        self.assertEqual((status, len(rows)), (1, 2 * len(names)), output)
        good = [row for row in rows if not row["problems"]]
        self.assertEqual({row["case"]["contender"] for row in good}, {"nothing", "honest"}, output)
        self.assertEqual({row["answers"] for row in good}, {150})
        self.assertEqual([row["delivered"] for row in good if row["case"]["contender"] == "honest"], [150, 150])
        self.assertIn("answers, ÷ nothing (95 %)", tables.markdown(self.record().head(), rows))
        self.assertEqual(sum("at fault" in one for one in verify.faults(self.record().folder)[0]), 4)

    def test_what_runs_beside_is_a_row_of_its_own_and_what_a_server_keeps_breaks_a_promise(self):
        aim = "[[aim]]\ntext = 'all given back'\nfigure = 'server_descriptors_grown'\nmost = 0\nevery = true\n" \
              "promise = true\nof = { contender = 'CONTENDER', beside = 'victim: waits and calls' }\n"  # fmt: skip
        text = HONEST + 'repetitions = 1\nbeside = ["", "victim: waits and calls"]\n'
        status, output = self.run_whole(text.replace("honest", "serves") + aim.replace("CONTENDER", "serves"))
        alone, beside = self.record().rows()
        self.assertEqual((status, alone["problems"], beside["problems"]), (0, [], []), output)
        self.assertEqual((alone["group"], "calls" in alone), (beside["group"], False))
        self.assertGreater(min(beside["kills"], beside["calls"]), 0)
        self.assertEqual((beside["server_descriptors_grown"], beside["server_logged_bytes"]), (0, 0))
        self.assertIn("| serves, beside victim: waits and calls |", output)
        self.assertEqual(verify.faults(self.record().folder), ([], []))
        shutil.rmtree(self.folder / "records")
        status, output = self.run_whole(text.replace("honest", "leaks") + aim.replace("CONTENDER", "leaks"))
        self.assertEqual((status, [row["problems"] for row in self.record().rows()]), (1, [[], []]), output)
        self.assertIn("promise broken: all given back", output)

    def test_what_ends_too_early_beside_is_a_fault(self):
        text = HONEST.replace("honest", "serves") + 'repetitions = 1\nbeside = ["quits", "victim: quits", "calls"]\n'
        status, output = self.run_whole(text.replace("0.2", "1.0"))
        found = {row["case"]["beside"]: "".join(row["problems"]) for row in self.record().rows()}
        self.assertEqual((status, found["calls"]), (1, ""), output)
        self.assertIn("ended with 0", found["quits"])
        self.assertIn("ended with 0", found["victim: quits"])

    def test_what_no_program_can_see_in_an_outage_is_told_and_nobodys_loss(self):
        text = HONEST.replace("2kpps", "20kpps").replace("0.2", "2.0") + 'repetitions = 1\nbeside = ["outages: 0.1"]\n'
        status, output = self.run_whole(text)
        (row,) = self.record().rows()
        self.assertEqual(row["problems"], [], output)
        self.assertEqual((status, row["problems"], row["lost"]), (0, [], 0), output)
        self.assertGreater(row["outages"], 2)
        self.assertIn(row["unseen"], range(1000))

    def test_memory_that_grows_after_the_warm_up_is_seen(self):
        text = HONEST.replace('"honest"', '"honest", "grows"').replace("0.2", "5") + "repetitions = 1\nwarm_up = 0.1\n"
        status, output = self.run_whole(text, "--seconds", "0.5")
        grown = {row["case"]["contender"]: row["settled_grown_kib"] for row in self.record().rows()}
        self.assertEqual((status, {row["offered"] for row in self.record().rows()}), (0, {1000}), output)
        self.assertLess(grown["honest"], 2048)
        self.assertGreaterEqual(grown["grows"], 8192)

    def test_the_host_itself_sends(self):
        text = 'sender = "fake send"\ndirection = "out"\nrate = "2kpps"\nseconds = 0.2\nrepetitions = 1\n'
        status, output = self.run_whole(text + 'contenders = ["nothing"]\n')
        (row,) = self.record().rows()
        self.assertEqual((status, row["problems"], row["received"]), (0, [], 400), output)
        self.assertEqual((row["group"], verify.faults(self.record().folder)),
                         ("64 B, 2kpps, sent by the host, 0.2 s", ([], [])))  # fmt: skip

    def interrupted(self, number: int, line_wanted: str, *words: str) -> None:
        """Starts a run of six turns and interrupts it after this line: it ends soon, and leaves nothing."""
        process = self.start(HONEST + "repetitions = 6\n", *words)
        while line_wanted not in (line := process.stdout.readline()):
            self.assertTrue(line, "it ended early")
        used = self.namespaces(self.below(process.pid))
        self.assertGreaterEqual(len(used), 4)
        process.send_signal(number)
        self.assertEqual(process.wait(INTERRUPTED_S), 130)
        self.assertNotIn("Traceback", process.stdout.read())
        process.stdout.close()
        self.assertTrue(self.gone(used))

    def test_an_interrupted_run_leaves_nothing_and_is_resumed(self):
        self.interrupted(signal.SIGINT, "2/6")
        self.interrupted(signal.SIGTERM, "are in the record already", "--resume", str(self.record().folder))
        record = self.record()
        measured = record.rows()
        self.assertIn(len(measured), range(2, 6))
        status, output = self.run_whole(HONEST + "repetitions = 6\n", "--resume", str(record.folder))
        self.assertEqual(status, 0, output)
        rows = record.rows()
        self.assertEqual(rows[: len(measured)], measured)
        self.assertEqual([row["repetition"] for row in rows], list(range(6)))
        self.assertEqual(verify.faults(record.folder), ([], []))
        status, output = self.run_whole(HONEST + "repetitions = 7\n", "--resume", str(record.folder))
        self.assertEqual(status, 2)
        self.assertIn("another battery", output)

    @unittest.skipUnless(shutil.which("tcpdump"), "needs tcpdump")
    def test_the_examples_of_the_document_are_right(self):
        page = (LAB.parent / "docs" / "lab.md").read_text()
        battery, contender, hosts = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
        self.assertLessEqual((len(battery.splitlines()), len(contender.splitlines())), (10, 20))
        (self.folder / "own").mkdir()
        (self.folder / "own" / "headers.toml").write_text(contender)
        (self.folder / "hosts.toml").write_text(hosts)
        self.assertEqual(inventory.load(self.folder / "hosts.toml").role("sensor").name, "probe")
        text = 'sender = "fake send"\n' + battery.replace("repetitions = 2", "repetitions = 1")
        status, output = self.run_whole(text, "--contenders", str(self.folder / "own"))
        self.assertEqual((status, len(self.record().rows())), (0, 4), output)

    def test_a_manager_that_is_killed_leaves_nothing(self):
        process = self.start(HONEST + "repetitions = 50\n")
        while "1/50" not in (line := process.stdout.readline()):
            self.assertTrue(line, "it ended early")
        used = self.namespaces(self.below(process.pid))
        self.assertGreaterEqual(len(used), 4)
        process.kill()
        process.wait()
        process.stdout.close()
        end = time.monotonic() + LIMIT_S
        while not self.gone(used):
            self.assertLess(time.monotonic(), end, "a network namespace is still there")
            time.sleep(0.05)

    def test_the_same_over_ssh_servers_in_three_namespaces(self):
        if not Path("/usr/sbin/sshd").exists():
            self.skipTest("needs openssh-server")
        try:
            import asyncssh  # noqa: F401
        except ImportError:
            self.skipTest("needs asyncssh (scripts/python-package lab)")
        script = str(LAB / "tests" / "over_ssh.py")
        status, output = self.run_whole(HONEST + "repetitions = 2\n", program=(script, "good"))
        self.assertEqual(status, 0, output)
        rows = self.record().rows()
        self.assertEqual([row["problems"] for row in rows], [[], []], output)
        self.assertEqual([row["received"] for row in rows], [400, 400])
        self.assertEqual(list(self.record().head()["machines"]), ["injector", "sensor", "receiver"])
        faults = {"wrong-key": "accept this key", "wrong-host-key": "known_hosts", "no-server": "cannot be reached"}
        for how, why in faults.items():
            status, output = self.run_whole(HONEST + "repetitions = 2\n", program=(script, how))
            self.assertEqual(status, 2, output)
            self.assertRegex(output, f"ringtap-lab: injector: .*{why}")
