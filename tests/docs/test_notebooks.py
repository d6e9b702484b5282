"""Test that notebooks run unchanged except for shorter training, and contain the output of their
last full run.
"""

from __future__ import annotations

import json
import re

import pytest

from calque.encoders import load_encoder
from documents import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def printed(cell: dict) -> list[str]:
    """Return the lines of standard output saved in a cell."""
    texts = (
        "".join(output["text"]) for output in cell["outputs"] if output.get("name") == "stdout"
    )
    return "".join(texts).splitlines()


@pytest.fixture
def folder(tmp_path, monkeypatch, tiny_folder):
    """Save a sentence-transformers teacher under the name that the notebooks load from the hub."""
    pytest.importorskip(
        "sentence_transformers", reason="pip install 'calque-align[sentence-transformers]'"
    )
    load_encoder(tiny_folder).save(tmp_path / "sentence-transformers" / "all-MiniLM-L6-v2")
    about = tmp_path / "sentence-transformers" / "all-MiniLM-L6-v2" / "calque.json"
    about.unlink()  # the published model has no calque.json
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_contains_its_output(path, folder, capsys):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    space: dict = {}
    for cell in (each for each in cells if each["cell_type"] == "code"):
        assert cell["execution_count"], "a cell was not run before the notebook was saved"
        assert {output["output_type"] for output in cell["outputs"]} <= {"stream"}
        text = re.sub(r"epochs=\d+", "epochs=0.1", "".join(cell["source"]))
        exec(compile(text, path.name, "exec"), space)
        assert len(capsys.readouterr().out.splitlines()) == len(printed(cell))
