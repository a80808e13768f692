# SPDX-License-Identifier: MIT OR Apache-2.0
"""Batteries, contenders and inventories as data: what they mean, and what is refused."""

import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

from ringtap_lab.manager import battery, contender, inventory
from ringtap_lab.manager.inventory import InventoryError
from ringtap_lab.manager.launch import command_of

FAKES = Path(__file__).resolve().parent / "fakes"
#: Those of the project's checks, as `--contenders` would name them.
CHECKS = Path(__file__).resolve().parents[2] / "checks"
KNOWN = contender.load_all([contender.FOLDER, FAKES, CHECKS / "contenders"])


def written(text: str, name: str = "some.toml") -> Path:
    """A file with this text, until the tests end."""
    folder = Path(tempfile.mkdtemp())
    unittest.addModuleCleanup(lambda: (folder / name).unlink())
    (folder / name).write_text(text)
    return folder / name


def read(text: str) -> battery.Battery:
    return battery.load(written(text), KNOWN)


class Batteries(unittest.TestCase):
    def test_lists_are_multiplied_and_contenders_take_turns(self):
        one = read('contenders = ["packet", "tcpdump", "xdp"]\nrepetitions = 3\n[[case]]\nsize = [64, 1500]\n')
        turns = list(one.turns())
        self.assertEqual(len(turns), 3 * 3 * 2)
        firsts = [turns[at].case.contender for at in range(0, 18, 3)]
        self.assertEqual(firsts, ["packet"] * 2 + ["tcpdump"] * 2 + ["xdp"] * 2)
        self.assertEqual([turn.case.size for turn in turns[:6]], [64] * 3 + [1500] * 3)
        self.assertEqual(len({(turn.case.key, turn.repetition) for turn in turns}), 18)

    def test_a_case_goes_before_what_all_cases_share(self):
        one = read('contenders = ["packet"]\nrepetitions = 2\n[[case]]\nrepetitions = 4\nload = "bpf:300"\n[[case]]\n')
        self.assertEqual([(case.load, count) for case, count in one.cases], [("bpf:300", 4), ("none", 2)])

    def test_the_memory_of_a_ring_is_that_of_the_case(self):
        (case, _), = read('contenders = ["tcpdump"]\nring_mib = 2\nrepetitions = 1').cases
        host = SimpleNamespace(cpus={"reader": 1}, programs={}, interfaces={})
        agent = SimpleNamespace(host=host, facts={"scratch": "/scratch", "files": "/files"})
        words = command_of(agent, KNOWN["tcpdump"], case, "rt1", KNOWN["tcpdump"].command)
        self.assertIn("-B 2048 ", words)
        self.assertIn("ring of 2 MiB", case.group)

    def test_what_runs_beside_has_arguments_and_is_compared_with_the_same_case_without_it(self):
        one = read('contenders = ["tcpdump"]\nbeside = ["", "a visitor and attackers: mix --seed 1"]\n')
        (alone, _), (case, _) = battery.changed(one, seconds=9.0).cases
        self.assertEqual(case.programs, [("a visitor", ""), ("attackers", "mix --seed 1")])
        self.assertEqual((alone.programs, alone.group, case.group), ([], case.group, "64 B, max, 9 s"))
        self.assertEqual(case.label, "tcpdump, beside a visitor and attackers: mix --seed 1")
        self.assertEqual(one.kinds()["attackers"], "beside")

    def test_what_cannot_be_measured_is_refused_before_anything_runs(self):
        for text, why in [
            ('contenders = ["pakcet"]', "no capture contender 'pakcet'"),
            ('contenders = ["packet"]\nsize = 0', "not a int above 0"),
            ('contenders = ["packet"]\nrepetitions = 0', "at least 1"),
            ('contenders = ["packet"]\nsizes = [64]', "no such key: sizes"),
            ('contenders = ["packet"]\nmethod = "guess"', "not one of rate, lossless"),
            ('contenders = ["netsniff-ng"]\nload = "bpf:300"', "netsniff-ng: has no option for load"),
            ('contenders = ["XDP_DROP floor"]\nring_mib = 2', "no place for the memory of its ring"),
            ('contenders = ["netsniff-ng"]\nreaders = 2', "several of it cannot read"),
            ('contenders = ["netsniff-ng"]\nfilters = "one matches"', "no place for a filter"),
            ('contenders = ["tcpdump"]\nfilters = "parts"\nreaders = 2', "as many flows as readers"),
            ('contenders = ["tcpdump"]\nfile = "a.pcap"', "only the sender 'ringtap send, file' sends a `file`"),
            ('contenders = ["tcpdump"]\nsender = "ringtap send, file"', "and nothing else"),
            ('contenders = ["tcpdump"]\nfilters = "udp"', "not one of none, one matches"),
            ('contenders = ["packet"]\nservice = "tcpdump"', "no service contender 'tcpdump'"),
            ('contenders = ["packet"]\nservice = "ping"\ndirection = "out"', "no method and no direction"),
            ('contenders = ["tcpdump"]\nservice = "ping"\nfilters = "one matches"', "only the filters none and"),
            ('contenders = ["packet"]\ndirection = "up"', "not one of in, out"),
            ('contenders = ["packet"]\nsender = "tcpdump"', "no sender contender 'tcpdump'"),
            ('contenders = ["packet"]\nbeside = "tcpdump"', "no beside contender 'tcpdump'"),
            ('contenders = ["pool of 500 chunks"]\nmethod = "command"\nbeside = "a visitor"', "nothing runs beside"),
            ('contenders = ["packet"]\nbeside = "attackers"', "'attackers' takes an argument"),
            ('contenders = ["packet"]\nbeside = "a visitor: liar"', "'a visitor' takes no argument"),
            ('contenders = ["packet"', "some.toml"),
        ]:
            with self.subTest(text), self.assertRaisesRegex(InventoryError, why):
                read(text)

    def test_every_battery_of_the_package_and_of_the_checks_can_be_read(self):
        for path in [*battery.FOLDER.glob("*.toml"), *(CHECKS / "batteries").glob("*.toml")]:
            self.assertTrue(list(battery.load(path, KNOWN).turns()), path)


class Contenders(unittest.TestCase):
    def test_each_is_about_twenty_lines_and_says_how_it_is_installed(self):
        for path in contender.FOLDER.glob("*.toml"):
            # Without configuration files of the program itself.
            others = sum(text.count("\n") for text in contender.load(path).files.values())
            self.assertLessEqual(len(path.read_text().splitlines()) - others, 26, path)
            self.assertTrue(contender.load(path).install, path)
            self.assertTrue(all(contender.load(path).version), path)

    def test_what_a_description_does_not_say_is_as_in_the_one_that_it_is_like(self):
        other, one = KNOWN["tcpdump"], KNOWN["tcpdump, exclusive tap"]
        self.assertEqual((one.counts, one.quiet_s, one.version), (other.counts, other.quiet_s, other.version))
        self.assertEqual((one.ready.attached, one.many_readers), ("xdp", False))
        with self.assertRaisesRegex(InventoryError, "nobody.toml"):
            contender.load(written('like = "nobody"'))

    def test_a_description_with_a_mistake_is_refused(self):
        good = (contender.FOLDER / "tcpdump.toml").read_text()
        for change, why in [
            (("note =", "nota ="), "no such key: nota"),
            (("delivered =", "deliverd ="), "counts delivered"),
            (("[ready]", "[ready]\nlin = 1"), "lin"),
            (("note =", 'kind = "service"\nnote ='), "a service has figures"),
            (("command =", "commands ="), "no such key: commands"),
        ]:
            with self.subTest(why), self.assertRaisesRegex(InventoryError, why):
                contender.load(written(good.replace(*change)))


class Inventories(unittest.TestCase):
    HOSTS = """
[[host]]
name = "one"
roles = ["injector", "receiver"]
interfaces = { out = "eth1" }
ssh = { address = "192.0.2.7", user = "lab" }
[[host]]
name = "two"
roles = ["sensor"]
cpus = { reader = 3 }
"""

    def test_machines_are_found_by_role(self):
        found = inventory.load(written(self.HOSTS))
        self.assertEqual(found.role("receiver").ssh.address, "192.0.2.7")
        self.assertIsNone(found.role("sensor").ssh)
        with self.assertRaisesRegex(InventoryError, "no host has the role vm-host"):
            found.role("vm-host")
        with self.assertRaisesRegex(InventoryError, "two: no interface `in`"):
            found.role("sensor").device("in")

    def test_mistakes_are_refused(self):
        for change, why in [
            (("sensor", "senser"), "no such role: senser"),
            (("two", "one"), "different names"),
            (("address", "adress"), "adress"),
            (("cpus", "cpu"), "no such key: cpu"),
            (("name", "nam"), "nam"),
        ]:
            with self.subTest(why), self.assertRaisesRegex(InventoryError, why):
                inventory.load(written(self.HOSTS.replace(*change)))
