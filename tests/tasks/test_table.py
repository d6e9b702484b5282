"""Tests of the table of tasks, and of tasks in other packages, which need no row in the table."""

from __future__ import annotations

import json
import re
import sys

import pytest

from calque.errors import SettingError
from calque.report.content import compose
from calque.report.reading import read_results
from calque.tasks.inputs import FIELDS, Inputs
from calque.tasks.table import TASKS, TaskRow, options_of_class, title_of, users
from command import fails, works
from documents import code_of, hooks

OWN = f"""{code_of("sentences.py")}
class Word:
    pass
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write a module outside the package, and a parallel text."""
    (tmp_path / "elsewhere.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "elsewhere", raising=False)
    words = (
        "the cat sees a house",
        "a house of time",
        "water in the house",
        "time and water",
        "the water",
    )
    (tmp_path / "test.tsv").write_text(
        "".join(f"{line}\t{line} {k}\n" for k, line in enumerate(words)), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def row(own, monkeypatch):
    """Add the custom class to the table of tasks."""
    found = TaskRow(
        "elsewhere:SentenceRetrieval",
        "Is the nearest sentence the translation?",
        "sentence retrieval",
        ("test",),
        ("langs",),
        languages="pairs",
    )
    monkeypatch.setitem(TASKS.rows, "means", found)
    return found


def study(folder, encoder, task, more=""):
    text = f'seeds = 1\n[encoders]\ntiny = "{encoder}"\n[methods.base]\n[tasks.mine]\ntask = "{task}"\n'
    (folder / "study.toml").write_text(f'{text}test = {{ de = "test.tsv" }}\n{more}')
    return folder / "study.toml"


def test_a_task_in_the_table_appears_in_help_studies_reports_and_reference(
    row, own, capsys, tiny_folder
):
    assert "means" in works(capsys, "evaluate", "--help")[0]
    shown, _ = works(capsys, "evaluate", tiny_folder, "means", "--help")
    assert "Is the nearest sentence the translation?" in shown
    assert "as --option NAME=VALUE:\n  --centred" in shown
    assert "--langs" in shown
    assert "\n  --train FILE" not in shown
    works(
        capsys,
        "study",
        study(own, tiny_folder, "means", "centred = true"),
        "--out",
        own / "out",
        "-q",
    )
    (record,) = map(json.loads, (own / "out" / "results.jsonl").read_text().splitlines())
    assert record["settings"]["centred"] is True
    assert title_of("means") == "sentence retrieval"
    assert "Is the nearest sentence the translation?" in hooks().commands()
    assert "means" in fails(capsys, "evaluate", tiny_folder, "no-such-task", "--test", "x")


def test_a_class_from_another_package_can_be_used_as_a_task(own, capsys, tiny_folder):
    path = study(own, tiny_folder, "elsewhere:SentenceRetrieval", "centred = true")
    works(capsys, "study", path, "--out", own / "out", "-q")
    (record,) = map(json.loads, (own / "out" / "results.jsonl").read_text().splitlines())
    assert (record["task"], record["settings"]["centred"]) == ("mine", True)
    assert (record["kind"], record["reporting"]) == ("sentences", {})
    line = fails(
        capsys,
        "study",
        study(own, tiny_folder, "elsewhere:SentenceRetrieval", "far = 5"),
        "--out",
        own / "out",
    )
    assert re.search(
        r"unknown setting 'far' of tasks\.mine, expected task, encoders.* centred", line
    )
    job = (
        "evaluate",
        tiny_folder,
        "elsewhere:SentenceRetrieval",
        "--test",
        "test.tsv",
        "--langs",
        "en",
        "de",
    )
    assert "--option far=1: expected NAME=VALUE with NAME one of centred" in fails(
        capsys, *job, "--option", "far=1"
    )
    assert "task elsewhere:Word must be a subclass" in fails(
        capsys, *job[:2], "elsewhere:Word", *job[3:]
    )


def test_a_report_shows_each_setting_of_a_task_from_another_package(own, capsys, tiny_folder):
    """The task has the name of one of calque's tasks, whose declaration for reports must not be
    used.
    """
    job = (
        "evaluate",
        tiny_folder,
        "elsewhere:SentenceRetrieval",
        "--test",
        "test.tsv",
        "--langs",
        "en",
        "de",
        "-q",
    )
    for centred in ("false", "true"):
        works(capsys, *job, "--option", f"centred={centred}", "--out", own / "results.jsonl")
    lines = [json.loads(line) for line in (own / "results.jsonl").read_text().splitlines()]
    assert [line["reporting"] for line in lines] == [{}, {}]
    composed = compose(read_results([own / "results.jsonl"]), title="x")
    (section,) = composed.sections
    assert section.title == "Sentences"
    assert [table.caption for table in section.blocks] == [
        "Sentences: accuracy, per cent, higher is better, non-centred",
        "Sentences: accuracy, per cent, higher is better, centred",
    ]
    assert not any("replaced" in note for note in composed.notes)


def test_from_files_passes_inputs_and_options_to_the_class_by_default(own):
    from calque.tasks import Task

    class Whole(Task):
        def __init__(self, inputs, *, size: int = 2):
            self.inputs, self.size = inputs, size

        def evaluate(self, encoder, *, progress=False):
            return []

    inputs = Inputs("whole", ["test.tsv"], [("en", "de")])
    (made,) = Whole.from_files(inputs, size=3)
    assert (made.inputs, made.size) == (inputs, 3)
    assert list(options_of_class(Whole)) == ["size"]


@pytest.mark.parametrize("task", TASKS)
def test_table_rows_match_their_classes(task):
    row, kind = TASKS[task], TASKS.load(task)
    assert {*row.files, *row.input_options} <= {*FIELDS}
    assert row.options == (*row.input_options, *options_of_class(kind))
    assert "test" in row.files
    if hasattr(kind, "names"):
        assert (row.files, row.languages) == (kind.files, kind.languages)
        assert not kind.names or task in kind.names
    assert row.help.endswith((".", "?"))
    assert row.reporting == kind.reporting


def test_the_function_users_returns_the_tasks_that_have_an_option():
    assert users("similarity") == ["retrieval", "sentences", "lexicon"]
    assert users("upos") == ["parsing"]
    assert users("test") == users("layer") == []


def test_files_that_a_task_does_not_use_are_rejected(tiny_folder):
    from calque.runs.evaluate import evaluate

    with pytest.raises(
        SettingError, match="word-alignment does not use train, but only test, links"
    ):
        evaluate(str(tiny_folder), Inputs("word-alignment", ["x"], [("en", "de")], train=["y"]))
