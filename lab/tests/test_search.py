# SPDX-License-Identifier: MIT OR Apache-2.0
"""The search for the highest load that meets a goal, with contenders that are simulated."""

import asyncio
import random
import unittest

from ringtap_lab.manager import battery
from ringtap_lab.manager.counts import contradictions
from ringtap_lab.manager.inventory import InventoryError
from ringtap_lab.manager.runner import Runner
from ringtap_lab.manager.search import STEPS, Goal, Load, Search

MOST_PPS, CAPACITY_PPS = 1_000_000.0, 400_000.0
#: A goal that allows some trials to be disturbed.
PATIENT = Goal(exceed=0.5, trials=10)


class Simulated:
    """Takes up to its capacity; what it does besides is said by `disturbed` and `lies`."""

    def __init__(self, disturbed: float = 0.0, lies: float = 0.0, seed: int = 0) -> None:
        self.disturbed, self.lies, self.random = disturbed, lies, random.Random(seed)
        self.asked: list[str] = []

    def trial(self, rate: str) -> dict:
        """A row as the lab makes it, of one second."""
        self.asked.append(rate)
        sent = round(MOST_PPS if rate == "max" else min(MOST_PPS, float(rate.removesuffix("pps"))))
        delivered = min(sent, round(CAPACITY_PPS))
        if self.random.random() < self.disturbed:
            delivered -= delivered // 10
        told = delivered + round(self.lies * delivered)
        return {"offered_pps": sent, "delivered_pps": told, "lost": sent - told, "command": "simulated",
                "loss_percent": 100 * (1 - told / sent),
                "problems": contradictions({"delivered": told, "lost": sent - delivered}, sent, sent)}  # fmt: skip

    def searched(self, *goals: Goal, rate: str = "max") -> dict:
        """What the lab's own loop makes of it."""
        text = f'contenders = ["simulated"]\nmethod = "lossless"\nrate = "{rate}"'
        found = battery.parse(text, "some", "here")
        found = battery.Battery(found.name, found.title, found.sender, found.cases, text, goals or found.goals)
        runner = Runner(found, None, {}, print)

        async def trial(_bench, case):
            return self.trial(case.rate)

        runner._trial = trial
        return asyncio.run(runner._search(None, found.cases[0][0], None))


class Loads(unittest.TestCase):
    def load(self, *losses: float) -> Load:
        return Load(100.0, 90.0, False, list(losses))

    def kind(self, goal: Goal, *losses: float) -> str:
        one = self.load(*losses)
        return "upper" * one.is_upper(goal) + "lower" * one.is_lower(goal)

    def test_one_trial_decides_the_default_goal(self):
        self.assertEqual(self.kind(Goal(), 0.0), "lower")
        self.assertEqual(self.kind(Goal(), 1e-9), "upper")
        self.assertEqual(self.kind(Goal(loss=0.005), 0.005), "lower")

    def test_a_load_is_decided_once_the_other_trials_cannot_change_it(self):
        goal = Goal(exceed=0.5, trials=4)
        for losses, kind in [((), ""), ((0, 0), "lower"), ((0, 1), ""), ((1, 1), ""), ((1, 1, 1), "upper"),
                             ((1, 0, 1, 0), "lower"), ((0, 1, 1, 0, 1), "upper")]:  # fmt: skip
            with self.subTest(losses):
                self.assertEqual(self.kind(goal, *losses), kind)

    def test_parts_that_binary_numbers_do_not_hold_count_as_they_are_written(self):
        goal = Goal(exceed=0.29, trials=100)  # 0.29 * 100 is 28.999999999999996
        self.assertEqual(self.kind(goal, *[1.0] * 29, *[0.0] * 71), "lower")
        self.assertEqual(self.kind(goal, *[1.0] * 30), "upper")

    def test_conditional_throughput_leaves_out_only_the_trials_that_the_goal_allows(self):
        one = self.load(0.5, 0.0, 0.01, 0.02)
        self.assertAlmostEqual(one.throughput(Goal(loss=0.05, exceed=0.25, trials=4)), 98.0)
        self.assertAlmostEqual(one.throughput(Goal(loss=0.05, exceed=0.5, trials=4)), 99.0)
        self.assertAlmostEqual(self.load(0.004).throughput(Goal(loss=0.005)), 99.6)


class Searches(unittest.TestCase):
    def near(self, pps: float, goal: Goal) -> None:
        self.assertLessEqual(pps, CAPACITY_PPS / (1 - goal.loss))
        self.assertGreaterEqual(pps, CAPACITY_PPS * (1 - goal.width) - 1)

    def test_a_contender_that_always_does_the_same(self):
        one = Simulated()
        found = one.searched()
        self.assertEqual((found["problems"], found["limited"]), ([], False))
        self.near(found["lossless_pps"], Goal())
        self.assertLessEqual(len(one.asked), STEPS)
        (goal,) = found["goals"]
        self.assertEqual(goal["conditional_throughput_pps"], found["lossless_pps"])
        self.assertLess(goal["relevant_lower_bound_pps"], goal["relevant_upper_bound_pps"])

    def test_the_rate_of_the_case_is_where_its_search_begins_and_not_believed(self):
        for rate in ("390kpps", "200kpps"):
            one = Simulated()
            self.near(one.searched(rate=rate)["lossless_pps"], Goal())
            self.assertLessEqual(len(one.asked), STEPS)
            self.assertAlmostEqual(float(one.asked[0].removesuffix("pps")), 1120 * int(rate.removesuffix("kpps")))

    def test_a_sender_that_is_too_slow_is_told(self):
        search = Search(None)
        search.tell(MOST_PPS, MOST_PPS, True)
        found = search.result()
        self.assertEqual((search.rate, found["lossless_pps"], found["limited"]), (None, MOST_PPS, True))

    def test_a_noisy_contender_is_found_with_a_goal_that_allows_noise(self):
        impatient = []
        for seed in range(50):
            found = Simulated(disturbed=0.1, seed=seed).searched(PATIENT)
            self.near(found["lossless_pps"], PATIENT)
            impatient.append(Simulated(disturbed=0.1, seed=seed).searched()["lossless_pps"])
        # Never too much, but often too little.
        self.assertLessEqual(max(impatient), CAPACITY_PPS)
        self.assertLess(min(impatient), CAPACITY_PPS * (1 - PATIENT.width))

    def test_a_contender_that_lies_by_a_thousandth_gets_no_figure(self):
        found = Simulated(lies=0.001).searched()
        self.assertNotIn("lossless_pps", found)
        self.assertIn("it says that it lost", found["problems"][0])

    def test_two_goals_share_their_trials(self):
        some = Goal(loss=0.05)
        one = Simulated()
        lossless, lossy = one.searched(Goal(), some)["goals"]
        self.near(lossless["conditional_throughput_pps"], Goal())
        self.assertLess(lossy["relevant_lower_bound_pps"], CAPACITY_PPS / 0.95)
        self.assertGreater(lossy["relevant_lower_bound_pps"], CAPACITY_PPS / 0.95 * 0.95)
        self.assertLessEqual(lossy["conditional_throughput_pps"], CAPACITY_PPS)
        first, second = Simulated(), Simulated()
        first.searched(Goal())
        second.searched(some)
        self.assertLess(len(one.asked), len(first.asked) + len(second.asked))

    def test_bounds_do_not_cross_when_trials_contradict_each_other(self):
        search = Search(None)
        for sent, lossless in [(1000.0, False), (800.0, True), (890.0, True), (850.0, False)]:
            search.tell(sent, sent if lossless else sent * 0.99, lossless)
            if search.rate is None:
                break
        lower, upper = search.bounds(Goal())
        self.assertLess(lower.sent_pps, upper.sent_pps)

    def test_a_search_ends_whatever_the_sender_sends(self):
        for seed in range(200):
            chance = random.Random(seed)
            search, rates = Search(None, (Goal(width=0.001), Goal(loss=0.01, exceed=0.3, trials=5))), []
            while search.rate:
                rates.append(search.rate)
                sent = chance.choice([1e3, 1e5, float(10 * len(rates)), chance.uniform(1, 1e6)])
                search.tell(sent, 1.0, chance.random() < 0.5)
                self.assertLessEqual(len(set(rates)), 2 * STEPS)
                self.assertLessEqual(len(rates), 2 * STEPS * 5)

    def test_a_contender_that_always_loses_ends_the_search_at_nothing(self):
        search, rates = Search(1e6), []
        while search.rate:
            rates.append(search.rate)
            sent = float(search.rate.removesuffix("pps"))
            search.tell(sent, sent * 0.99, False)
        self.assertEqual(len(rates), STEPS)
        self.assertEqual(search.result()["lossless_pps"], 0.0)

    def test_the_load_of_several_trials_is_the_least(self):
        search = Search(None, (Goal(trials=3),))
        for sent in (1000.0, 900.0, 950.0):
            search.tell(sent, sent, True)
        self.assertEqual(search.result()["lossless_pps"], 900.0)

    def test_goals_of_a_battery(self):
        text = 'contenders = ["any"]\n'
        self.assertEqual(battery.parse(text, "some", "here").goals, (Goal(),))
        two = battery.parse(text + "[[goal]]\n[[goal]]\nloss = 0.005\nexceed = 0.5\ntrials = 5\n", "some", "here")
        self.assertEqual(two.goals, (Goal(), Goal(0.005, 0.5, 5)))
        for goal, why in [("trials = 0", "trials are 1"),
                          ("exceed = 1", "exceed"), ("lost = 1", "lost"), ('exceed = "a"', "goal")]:  # fmt: skip
            with self.subTest(goal), self.assertRaisesRegex(InventoryError, why):
                battery.parse(f"{text}[[goal]]\n{goal}\n", "some", "here")


if __name__ == "__main__":
    unittest.main()
