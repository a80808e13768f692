# SPDX-License-Identifier: MIT OR Apache-2.0
"""examples/notebook.ipynb runs, from a capture to plots."""

import os
import pathlib
import tempfile
import unittest
from unittest import mock

import nbclient
import nbformat

NOTEBOOK = pathlib.Path(__file__).parents[4] / "examples" / "notebook.ipynb"


class Notebook(unittest.TestCase):
    def test_the_notebook_runs_to_its_plots(self) -> None:
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, RINGTAP_DEVICE="sim:20kpps?flows=12"):
            folders = {"metadata": {"path": folder}}
            nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=folders).execute()
        outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
        kinds = {kind for output in outputs for kind in output.get("data", {})}
        self.assertIn("image/png", kinds)
        texts = [output["text"] for output in outputs if output.output_type == "stream"]
        self.assertTrue(any("balanced" in text for text in texts), texts)

    def test_git_has_the_notebook_without_outputs(self) -> None:
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        nbformat.validate(notebook)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                self.assertEqual((cell.outputs, cell.execution_count), ([], None))


if __name__ == "__main__":
    unittest.main()
