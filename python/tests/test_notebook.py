"""The example notebook, run from its first cell to its last."""

import shutil
import tempfile
import unittest
from pathlib import Path

import meme_rl
import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "catch.ipynb"


class Notebook(unittest.TestCase):
    def setUp(self):
        self.directory = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)
        self.notebook = nbformat.read(NOTEBOOK, as_version=4)

    def test_is_stored_without_outputs(self):
        for cell in self.notebook.cells:
            if cell.cell_type == "code":
                self.assertEqual((cell.outputs, cell.execution_count), ([], None))

    def test_trains_draws_a_curve_and_shows_a_video(self):
        NotebookClient(self.notebook, resources={"metadata": {"path": str(self.directory)}}).execute()
        outputs = [output for cell in self.notebook.cells for output in cell.get("outputs", [])]
        shown = {kind for output in outputs for kind in output.get("data", {})}
        self.assertLessEqual({"image/png", "image/gif"}, shown)
        score = meme_rl.metrics(self.directory / "runs" / "catch")["evaluation/score"]
        self.assertGreater(score.iloc[-1], 0.5)


if __name__ == "__main__":
    unittest.main()
