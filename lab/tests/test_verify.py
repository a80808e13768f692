# SPDX-License-Identifier: MIT OR Apache-2.0
"""Records that were submitted: a whole one passes, and each kind of fault is found."""

import copy
import hashlib
import io
import json
import random
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from ringtap_lab import command
from ringtap_lab.manager import battery, verify
from ringtap_lab.manager.record import HEAD, ROWS, Record, RecordError

TEXT = """
contenders = ["one", "two", "absent"]
repetitions = 2
readers = 2
[[case]]
rate = "1kpps"
[[case]]
method = "lossless"
contenders = ["one"]
"""
FACTS = {"cpu": "a CPU", "cores": 2, "memory_mib": 1, "kernel": "6", "system": "Debian", "governor": "unknown",
         "clock": {"difference_ms": 0.5, "uncertainty_ms": 0.1}}  # fmt: skip


def head() -> dict:
    contenders = {name: {"version": "1.2", "missing": ""} for name in ("one", "two", "ringtap send")}
    contenders["absent"] = {"version": "", "missing": "not installed here: absent"}
    layout = {"a": {"roles": ["injector"]}, "b": {"roles": ["sensor"]}}
    machines = {"a": copy.deepcopy(FACTS), "b": copy.deepcopy(FACTS)}
    return {"title": "some", "text": TEXT, "sender": "ringtap send", "machines": machines,
            "layout": layout, "contenders": contenders}  # fmt: skip


def trial(lost: int, shunted: int = 10) -> dict:
    """1000 packets in a second; the second reader loses some and has some withheld."""
    delivered = 1000 - shunted - lost
    readers = [{"delivered": 1000, "lost": 0, "offered": 1000, "balanced": 1},
               {"delivered": delivered, "lost": lost, "shunted": shunted}]  # fmt: skip
    return {"offered": 1000, "received": 1000, "delivered": delivered, "shunted": shunted, "lost": lost,
            "loss_percent": lost / 10, "elapsed_ns": 10**9, "offered_pps": 1000.0, "delivered_pps": float(delivered),
            "readers": readers, "problems": []}  # fmt: skip


def rows() -> list[dict]:
    """A row for each turn of the battery whose contender is installed."""
    found = []
    for turn in battery.parse(TEXT, "some", "here").turns():
        if turn.case.contender != "absent":
            trials = [{"rate": "max", **trial(7)}, {"rate": "900pps", **trial(0)}]
            figures = {"lossless_pps": 1000.0, "trials": trials, "problems": []}
            figures = figures if turn.case.method == "lossless" else trial(3)
            found.append({"key": turn.case.key, "case": vars(turn.case), "group": turn.case.group,
                          "repetition": turn.repetition, **figures})  # fmt: skip
    return copy.deepcopy(found)


def random_place(chance: random.Random, whole) -> tuple:
    """A container within `whole`, and an index or key of it."""
    place, way = whole, chance.randrange(len(whole))
    while isinstance(place[way], (dict, list)) and place[way] and (place is whole or chance.random() < 0.8):
        place = place[way]
        way = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
    return place, way


class Verify(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def written(self, head: dict, rows: list[dict]) -> Path:
        record = Record.create(Path(tempfile.mkdtemp(dir=self.folder)), "some", head)
        for row in rows:
            record.append(row)
        return record.folder

    def faults(self, changed=lambda head, rows: None) -> list[str]:
        """What is found in a good record after a change."""
        its_head, its_rows = head(), rows()
        changed(its_head, its_rows)
        return verify.faults(self.written(its_head, its_rows))[0]

    def test_a_whole_record_passes_and_is_not_changed(self):
        folder = self.written(head(), rows())
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.assertEqual(verify.faults(folder), ([], ["absent was not measured: not installed here: absent"]))
        self.assertEqual({path.name: path.read_bytes() for path in folder.iterdir()}, before)

    def test_each_fault_is_found(self):
        for why, change in [
            ("two, repetition 2: is missing", lambda head, rows: rows.pop(3)),
            ("one, repetition 1: is there 2 times", lambda head, rows: rows.append(rows[0])),
            ("its case is not one of the battery", lambda head, rows: rows[0].update(repetition=7)),
            ("its key is not that of its case", lambda head, rows: rows[0]["case"].update(size=1500)),
            ("at fault: it lied", lambda head, rows: rows[0]["problems"].append("it lied")),
            ("at fault: it died", lambda head, rows: [rows[0].pop("offered"), rows[0]["problems"].append("it died")]),
            ("row 1: lacks 'offered'", lambda head, rows: rows[0].pop("offered")),
            ("row 1: is malformed", lambda head, rows: rows[0].update(offered="many")),
            ("row 1: is malformed", lambda head, rows: rows[0].update(case="one")),
            ("the device received 999 packets", lambda head, rows: rows[0].update(received=999)),
            ("reader 2: it says that it lost 2 packets", lambda head, rows: rows[0]["readers"][1].update(lost=2)),
            ("1 readers counted, the case has 2", lambda head, rows: rows[0]["readers"].pop()),
            ("delivered is 1000", lambda head, rows: rows[0].update(delivered=1000)),
            ("lost is 2, its accounts give 3", lambda head, rows: rows[0].update(lost=2)),
            ("delivered_pps is 2000", lambda head, rows: rows[0].update(delivered_pps=2000)),
            ("loss_percent is 0", lambda head, rows: rows[0].update(trial(3, shunted=0), loss_percent=0)),
            ("nothing was sent", lambda head, rows: rows[0].update(elapsed_ns=0)),
            ("no trial without loss had more than 1000", lambda head, rows: rows[2].update(lossless_pps=1001.0)),
            ("at max: lost is 0", lambda head, rows: rows[2]["trials"][0].update(lost=0)),
            ("two: no version is named", lambda head, rows: head["contenders"]["two"].update(version="")),
            ("two: no version is named", lambda head, rows: head["contenders"]["two"].update(version="unknown")),
            ("two: is in the battery, but not described", lambda head, rows: head["contenders"].pop("two")),
            ("is said to be not installed", lambda head, rows: head["contenders"]["two"].update(missing="not here")),
            ("a: its kernel is not named", lambda head, rows: head["machines"].update(a={**FACTS, "kernel": ""})),
            ("b: its machine is not described", lambda head, rows: head["machines"].pop("b")),
            ("no machine was the sensor", lambda head, rows: head["layout"].pop("b")),
            ("head.json: lacks 'machines'", lambda head, rows: head.pop("machines")),
            ("its battery: case 1: needs", lambda head, rows: head.update(text="[[case]]")),
            ("head.json: is malformed", lambda head, rows: head.update(text=5)),
        ]:
            with self.subTest(why):
                found = self.faults(change)
                self.assertTrue(any(why in one for one in found), found)

    def test_a_row_of_a_service_is_checked(self):
        case = battery.Case("one", service="web", readers=2)
        row = {"readers": [{"delivered": 9, "lost": 0}] * 2, "passed": 10, "served": {"answers": 5}, "answers": 5}
        self.assertEqual(verify.account(case, row), [])
        for why, change in [
            ("1 readers counted", {"readers": [{"delivered": 9}]}),
            ("reader 1: delivered 9 packets of 8", {"passed": 8}),
            ("answers is 6, its client said 5", {"answers": 6}),
            ("answers is 0", {"answers": 0, "served": {"answers": 0}}),
        ]:
            (found, *_) = verify.account(case, row | change)
            self.assertIn(why, found)

    def test_lines_that_are_no_rows_are_found(self):
        for end, why in [('{"key": "a', "the last row is cut short"), ("[1]\n", "row 7: is no row")]:
            folder = self.written(head(), rows())
            with (folder / ROWS).open("a") as file:
                file.write(end)
            found, _ = verify.faults(folder)
            self.assertTrue(any(why in one for one in found), found)
            self.assertTrue((folder / ROWS).read_text().endswith(end))

    def test_checksums_are_compared_if_there_are_any(self):
        folder = self.written(head(), rows())
        sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (HEAD, ROWS)}
        good = "".join(f"{value}  {name}\n" for name, value in sums.items())
        for text, wanted in [
            (good, []),
            (good.replace(sums[ROWS][:8], "0" * 8), [f"{ROWS}: is not the file whose checksum stands in SHA256SUMS"]),
            (good.splitlines()[0], [f"SHA256SUMS: has no checksum of {ROWS}"]),
        ]:
            (folder / verify.SUMS).write_text(text)
            self.assertEqual(verify.faults(folder)[0], wanted)
        (folder / verify.SUMS).write_text(f"{good}{sums[HEAD]}  gone.md\n{sums[HEAD]}  ../../{HEAD}\n")
        gone, outside = verify.faults(folder)[0]
        self.assertIn("gone.md", gone)
        self.assertIn("not a checksum of a file in this folder", outside)

    def test_a_record_of_any_form_is_judged(self):
        chance = random.Random(1)
        values = [None, True, -1, 0, 0.5, 1e308, 10**30, "", "x", [], {}, [[]], {"a": []}, float("nan")]
        texts = ["contenders = [[1]]", "case = []", "[[goal]]\nloss = 2",
                 'contenders = ["one"]\nrepetitions = 1000000000']  # fmt: skip
        for _ in range(400):
            its_head, its_rows = {"schema": 1, "date": "today", "host": "a", "battery": "some", **head()}, rows()
            place, way = random_place(chance, [its_head, *its_rows])
            place[way] = chance.choice([*values, *texts])
            if chance.random() < 0.2:
                its_head["text"] = chance.choice(texts)
            (self.folder / HEAD).write_text(json.dumps(its_head))
            (self.folder / ROWS).write_text("".join(json.dumps(row) + "\n" for row in its_rows))
            try:
                found, notes = verify.faults(self.folder)
            except RecordError:
                continue  # another schema
            self.assertTrue(all(isinstance(one, str) for one in found + notes))

    def test_the_command_says_each_fault_and_ends_with_a_status(self):
        for change, status, why in [
            (lambda found: None, 0, "complete, and its accounts agree"),
            (lambda found: found.pop(), 1, "fault: .*is missing\n.*: 1 faults"),
        ]:
            its_rows, said = rows(), io.StringIO()
            change(its_rows)
            with redirect_stdout(said):
                self.assertEqual(command.main(["verify", str(self.written(head(), its_rows))]), status)
            self.assertRegex(said.getvalue(), why)
        with redirect_stderr(io.StringIO()) as said:
            self.assertEqual(command.main(["verify", str(self.folder)]), 2)
        self.assertIn("not a record", said.getvalue())



if __name__ == "__main__":
    unittest.main()
