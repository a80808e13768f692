# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables, verdicts, the page, and the part of it in the README."""

import tempfile
import unittest
from pathlib import Path

from ringtap_lab.scenarios import figures, goals, report, result, tables
from ringtap_lab.scenarios.contenders import FLOOR, TAP_EXCLUSIVE, TCPDUMP


def rows(delivered, offered=None, lost=0):
    """Rounds of one contender."""
    return [
        {
            "round": number, "delivered_mpps": rate, "offered_mpps": offered or rate,
            "lost": lost, "loss_percent": 1.0 if lost else 0.0, "problems": [],
            "disturbed_ms": 0, "stolen_ms": 0, "elapsed_ns": 10**9,
        }
        for number, rate in enumerate(delivered)
    ]  # fmt: skip


def entry(name, rounds, missing=None):
    keys = ("delivered_mpps", "offered_mpps", "loss_percent", "ns_above_floor")
    summary = figures.summary(rounds, keys)
    return {"command": f"run {name}", "note": "", "missing": missing, "rounds": rounds,
            "summary": summary}  # fmt: skip


def stored(tap=(1.6, 1.7), lost=0, tcpdump_missing=None):
    """A small result, as a run would store it."""
    found = {FLOOR.name: rows((2.0, 2.0)), TAP_EXCLUSIVE.name: rows(tap, lost=lost)}
    found[TCPDUMP.name] = [] if tcpdump_missing else rows((0.5, 0.5), offered=1.0, lost=9)
    figures.with_floor(found, FLOOR.name)
    sizes = {"64": {name: entry(name, one) for name, one in found.items()}}
    sizes["64"][TCPDUMP.name]["missing"] = tcpdump_missing
    one = {
        "date": "2026-01-02T03:04:05Z", "revision": "abc", "command": "ringtap-lab bench",
        "machine": {"cpu": "A CPU", "cores": 2, "virtual": True, "kernel": "6.18",
                    "system": "Debian"},
        "tools": {"tcpdump": "4", "dumpcap": "4", "netsniff-ng": "0.6"},
        "layout": {"sender_cpu": 0, "reader_cpu": 1, "ring_mib": 64},
        "quiet": {"busy_share": 0.0, "load_average": 0.1},
        "sender_command": "send it", "capture": sizes, "problems": [],
    }  # fmt: skip
    one["goals"], one["notes"] = goals.evaluate(one), result.notes(one, full=True)
    return one


class Tables(unittest.TestCase):
    def test_columns_are_aligned_and_numbers_are_right(self):
        text = tables.table(["", "Mpps"], [["tap", "1.5"], ["tcpdump", "10.25"]])
        want = "|         |  Mpps |\n| ------- | ----: |\n| tap     |   1.5 |\n| tcpdump | 10.25 |\n"
        self.assertEqual(text, want)

    def test_what_is_not_installed_is_said_and_not_zero(self):
        text = tables.capture(stored(tcpdump_missing="tcpdump")["capture"])
        self.assertRegex(text, r"\| tcpdump +\| +not installed \|")

    def test_loss_of_nothing_is_a_plain_zero(self):
        text = tables.capture(stored()["capture"])
        self.assertRegex(text, r"\| tap exclusive +\|[^|]*\|[^|]*\| +0 \|")


class Goals(unittest.TestCase):
    ABOVE_FLOOR = "64 bytes: ns above the floor, tap exclusive against tcpdump"

    def verdict(self, found, text):
        (one,) = [one for one in goals.evaluate(found) if text in one["goal"]]
        return one

    def test_a_goal_is_met_by_the_median_of_the_rounds(self):
        one = self.verdict(stored(), self.ABOVE_FLOOR)
        self.assertEqual((one["verdict"], round(one["figure"], 3)), ("met", 0.071))

    def test_a_figure_below_the_goal_is_missed(self):
        one = self.verdict(stored(tap=(1.2, 1.2)), self.ABOVE_FLOOR)
        self.assertEqual(one["verdict"], "MISSED")

    def test_one_lost_packet_misses_the_goal_of_none(self):
        self.assertEqual(self.verdict(stored(), "that tap exclusive lost")["verdict"], "met")
        one = self.verdict(stored(lost=1), "that tap exclusive lost")
        self.assertEqual((one["verdict"], one["figure"]), ("MISSED", 2))

    def test_a_measurement_at_fault_meets_no_goal(self):
        found = stored()
        for row in found["capture"]["64"][TAP_EXCLUSIVE.name]["rounds"]:
            row["problems"] = ["its counters do not balance"]
        for text in (self.ABOVE_FLOOR, "that tap exclusive lost"):
            self.assertEqual(self.verdict(found, text)["verdict"], "not measured")

    def test_what_was_not_measured_is_not_met(self):
        self.assertEqual(self.verdict(stored(), "pool alone, 500")["verdict"], "not measured")

    def test_the_pool_counts_by_its_slowest_round(self):
        summary = {"mpps": {"median": 200.0, "min": 120.0, "max": 230.0}}
        one = self.verdict({"pool": {"500": {"summary": summary}}}, "pool alone, 500")
        self.assertEqual((one["verdict"], one["figure"]), ("MISSED", 120.0))

    def test_time_to_the_reader_and_distance_are_ratios_and_percentiles_of_good_rounds(self):
        late = [{"round": 0, "p99_ns": 180_000, "problems": []},
                {"round": 1, "p99_ns": 9_000_000, "problems": ["left behind"]}]  # fmt: skip
        rates = lambda *each: {"rounds": [
            {"round": at, "delivered_mpps": one, "problems": []} for at, one in enumerate(each)
        ]}  # fmt: skip
        kinds = {"ringtap hub": rates(6.0, 8.0), "reader with a watermark": rates(9.0, 8.8)}
        found = {"latency": {"contenders": {"1 Mpps": {"rounds": late}}},
                 "distance": {"contenders": kinds}}  # fmt: skip
        one = self.verdict(found, "to the reader at 1 Mpps")
        self.assertEqual((one["verdict"], one["figure"]), ("met", 180.0))
        one = self.verdict(found, "with a watermark of 20,000")
        self.assertEqual((one["verdict"], round(one["figure"], 2)), ("MISSED", 1.3))

    def test_record_is_compared_round_by_round(self):
        def found(*rates):
            rounds = [{"round": number, "lossless_pps": one} for number, one in enumerate(rates)]
            return {"rounds": rounds}

        contenders = {goals.TAP_RECORD: found(6e5, 9e5), goals.OTHER_RECORD: found(3e5, 3e5)}
        one = self.verdict({"record": {"contenders": contenders}}, "record of 1500-byte")
        self.assertEqual((one["verdict"], one["figure"]), ("met", 2.5))


class Page(unittest.TestCase):
    def test_the_page_says_machine_method_and_commands(self):
        text = report.markdown(stored())
        for words in ("A CPU, 2 cores (virtual)", "## Method", "send it", "run tap exclusive",
                      "None: every measurement's accounts agree"):  # fmt: skip
            self.assertIn(words, text)

    def test_a_busy_machine_is_noted_first(self):
        found = stored()
        found["quiet"] = {"busy_share": 0.5, "load_average": 3.0}
        found["notes"] = result.notes(found, full=True)
        text = report.markdown(found)
        self.assertLess(text.index("other programs kept 50% of the cores busy"),
                        text.index("## Goals"))  # fmt: skip

    def test_refreshing_the_readme_changes_only_what_is_between_the_markers(self):
        with tempfile.TemporaryDirectory() as folder:
            readme = Path(folder) / "README.md"
            readme.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
            report.refresh(readme, "| a table |")
            once = readme.read_text()
            report.refresh(readme, "| a table |")
            self.assertEqual(readme.read_text(), once)
        self.assertTrue(once.startswith(f"before\n{report.BEGIN}\n|"))
        self.assertTrue(once.endswith(f"{report.END}\nafter\n"))
        self.assertNotIn("old", once)

    def test_a_readme_without_its_markers_is_left_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            readme = Path(folder) / "README.md"
            for text in ("nothing", report.END + report.BEGIN, report.BEGIN * 2 + report.END):
                readme.write_text(text)
                self.assertRaises(ValueError, report.refresh, readme, "| a table |")
                self.assertEqual(readme.read_text(), text)
