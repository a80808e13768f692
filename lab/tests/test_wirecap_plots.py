# SPDX-License-Identifier: MIT OR Apache-2.0
"""The WireCAP plots: every file is there in both forms, and shows what its rows say."""

from __future__ import annotations

import sys
import tempfile
import unittest
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from unittest import mock

from ringtap_lab import scenarios
from ringtap_lab.scenarios import wirecap

try:
    from ringtap_lab.scenarios import wirecap_plots
    WHY_NOT = None
except ImportError as error:
    WHY_NOT = f"{error}: install python3-matplotlib"

NAMES = ("no-load", "loaded", "product", "absorption", "skew")


def mode(threshold: int | None, loss: float, disordered: float) -> dict:
    return {"T": threshold, "loss": loss, "disordered": disordered}


SKEW = {
    "7:1:1:1": [mode(None, 0.43, 0.0), mode(20, 0.0, 0.25), mode(80, 0.01, 0.5)],
}
FOUND = {
    "no_load": [{"P": burst, "pool": 0.0, "ring": 0.1, "copy": 0.2} for burst in (1000, 10_000)],
    "loaded": [{"P": burst, "small": 0.1, "large": 0.0, "ring": 0.5, "copy": 0.6}
               for burst in (1000, 10_000)],
    "beside": [{"name": "DNA", "P": 6000, "paper": 15.0}],
    "product": [{"P": burst, "(64,400)": 0.1, "(256,100)": 0.1} for burst in (1000, 10_000)],
    "absorption": [{"formula": 100.0, "longest": 99}, {"formula": 1000.0, "longest": 995}],
    "skew": SKEW,
}


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Plots(unittest.TestCase):
    def test_every_figure_is_there_as_png_and_svg(self):
        with tempfile.TemporaryDirectory() as folder:
            files = wirecap_plots.draw(FOUND, Path(folder) / "figures")
            self.assertEqual({file.name for file in files},
                             {f"{name}.{kind}" for name in NAMES for kind in ("png", "svg")})
            for file in files:
                begin = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml"}[file.suffix]
                content = file.read_bytes()
                self.assertTrue(content.startswith(begin), file)
                self.assertGreater(len(content), 5000, file)

    def test_a_plot_repeats_to_the_byte(self):
        with tempfile.TemporaryDirectory() as folder:
            both = [wirecap_plots.save(wirecap_plots.skew(SKEW), Path(folder), name)
                    for name in ("one", "other")]
            for one, other in zip(*both):
                self.assertEqual(one.read_bytes(), other.read_bytes(), one.suffix)

    def test_the_skew_plot_shows_loss_and_disorder_of_each_mode(self):
        axes, other = wirecap_plots.skew(SKEW | {"elephant:60": SKEW["7:1:1:1"]}).axes
        titles = [one.get_title() for one in (axes, other)]
        self.assertEqual(titles, ["Skewed queues, 7:1:1:1", "Skewed queues, elephant:60"])
        shown = {line.get_label(): (list(line.get_xdata()), [round(y) for y in line.get_ydata()])
                 for line in axes.get_lines()}
        modes = ["basic", "20 %", "80 %"]
        self.assertEqual(shown, {
            "lost": (modes, [43, 0, 1]),
            "out of order": (modes, [0, 25, 50]),
        })
        self.assertEqual(len(axes.get_legend().get_texts()), 2)

    def test_the_papers_values_stand_beside_ours(self):
        with mock.patch.object(wirecap_plots, "save", return_value=[]) as save:
            with tempfile.TemporaryDirectory() as folder:
                wirecap_plots.draw(FOUND, Path(folder))
        figures = {call.args[2]: call.args[0] for call in save.call_args_list}
        lines = figures["loaded"].axes[0].get_lines()
        paper = [line for line in lines if line.get_label() == "the paper"]
        self.assertEqual([list(line.get_xydata()[0]) for line in paper], [[6000, 15.0]])


class Without(unittest.TestCase):
    def test_without_matplotlib_it_says_what_to_install(self):
        said = StringIO()
        with mock.patch.dict(sys.modules, {"matplotlib": None}), redirect_stderr(said):
            # The package remembers what it imported, too.
            sys.modules.pop("ringtap_lab.scenarios.wirecap_plots", None)
            vars(scenarios).pop("wirecap_plots", None)
            self.assertFalse(wirecap.plotted(FOUND, Path("/nowhere")))
        self.assertIn("install python3-matplotlib", said.getvalue())


if __name__ == "__main__":
    unittest.main()
