"""Tests of the table of analyses."""

from __future__ import annotations

import json

import pytest

from calque.analyses.table import ANALYSES, Analysis
from calque.cli.parser import command_class, common_options
from calque.named import imported
from command import fails, works


@pytest.mark.parametrize("name", ANALYSES)
def test_each_row_names_a_function_and_existing_options(name):
    row = ANALYSES[name]
    assert callable(imported(row.target))
    assert set(row.options) <= common_options(command_class("analyze")).keys()
    assert row.help.endswith((".", "?"))


def test_an_added_analysis_is_listed_run_and_reported(tmp_path, monkeypatch, capsys, tiny_folder):
    own = (
        "def size(questions, view):\n"
        "    return [questions.finding('size', view, 'dimensions', float(view.source.dim), 1, "
        "percent=False)]\n"
    )
    (tmp_path / "measured.py").write_text(own)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(
        ANALYSES, "size", Analysis("measured:size", "How many dimensions?", "measure")
    )
    text, out = tmp_path / "test.tsv", tmp_path / "found.jsonl"
    text.write_text("the cat sees\tsees cat the\na house\thouse a\n" * 4)
    assert "How many dimensions?" in works(capsys, "analyze", "--help")[0]
    works(
        capsys,
        "analyze",
        tiny_folder,
        "--test",
        text,
        "--langs",
        "en",
        "de",
        "--only",
        "size",
        "--out",
        out,
        "-q",
    )
    (record,) = map(json.loads, out.read_text().splitlines())
    assert (record["analysis"], record["metric"]) == ("size", "dimensions")
    works(capsys, "report", out, "--out", tmp_path / "report.html")
    job = (
        "analyze",
        tiny_folder,
        "--test",
        text,
        "--langs",
        "en",
        "de",
        "--only",
        "size",
        "--forms",
        "3",
    )
    assert "--forms is an option of examples, but --only selects size" in fails(capsys, *job)
