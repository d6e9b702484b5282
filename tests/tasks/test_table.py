"""The table of tasks, and tasks of other packages, which need no row."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from calque.errors import SettingError
from calque.tasks.inputs import FIELDS, Inputs
from calque.tasks.table import TASKS, TaskRow, option_names, users
from command import fails, works

ROOT = Path(__file__).resolve().parents[2]
OWN = '''
import numpy as np

from calque.algebra.normalize import unit_rows
from calque.tasks.base import Score, Task


class Sentences(Task):
    """Is the nearest sentence of the other language the translation?"""

    def __init__(self, corpus, data, *, centred: bool = False, nearest: int = 1):
        self.corpus, self.data, self.centred, self.nearest = corpus, data, centred, nearest

    @classmethod
    def from_files(cls, inputs, **options):
        return [cls(corpus, name, **options) for name, corpus in inputs.corpora()]

    def evaluate(self, encoder, *, progress=False):
        sides = [encoder.encode(side).sentence_means() for side in (self.corpus.source, self.corpus.target)]
        x, y = (unit_rows(side - self.centred * side.mean(axis=0)) for side in sides)
        similarity = x @ y.T
        right = (similarity > np.diag(similarity)[:, None]).sum(axis=1) < self.nearest
        value, about = float(right.mean()), {"centred": self.centred, "nearest": self.nearest}
        return [Score("sentences", self.data, self.corpus.langs, "accuracy", value, value, value, len(right), 0, about)]


class Word:
    pass
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write a module outside the package, and a parallel text."""
    (tmp_path / "elsewhere.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "elsewhere", raising=False)
    words = ("the cat sees a house", "a house of time", "water in the house", "time and water", "the water")
    (tmp_path / "test.tsv").write_text(
        "".join(f"{line}\t{line} {k}\n" for k, line in enumerate(words)), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def row(own, monkeypatch):
    """Add the class as a row of the table."""
    found = TaskRow(
        "elsewhere:Sentences", "Is the nearest sentence the translation?", "sentence retrieval", ("test",),
        ("langs", "centred", "nearest"), languages="pairs",
    )  # fmt: skip
    monkeypatch.setitem(TASKS.rows, "means", found)
    return found


def study(folder, encoder, task, more=""):
    text = f'seeds = 1\n[encoders]\ntiny = "{encoder}"\n[methods.base]\n[tasks.mine]\ntask = "{task}"\n'
    (folder / "study.toml").write_text(f'{text}test = {{ de = "test.tsv" }}\n{more}')
    return folder / "study.toml"


def test_a_row_is_found_in_help_study_report_and_reference(row, own, capsys, tiny_folder):
    from calque.report.verdict import task_name

    assert "means" in works(capsys, "evaluate", "--help")[0]
    shown, _ = works(capsys, "evaluate", tiny_folder, "means", "--help")
    assert "Is the nearest sentence the translation?" in shown
    assert "as --option NAME=VALUE:\n  --centred" in shown
    assert "--langs" in shown
    assert "\n  --train FILE" not in shown
    works(capsys, "study", study(own, tiny_folder, "means", "centred = true"), "--out", own / "out", "-q")
    (record,) = map(json.loads, (own / "out" / "results.jsonl").read_text().splitlines())
    assert record["settings"]["centred"] is True
    assert task_name("means") == "sentence retrieval"
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    assert "Is the nearest sentence the translation?" in hooks.commands()
    assert "means" in fails(capsys, "evaluate", tiny_folder, "no-such-task", "--test", "x")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("elsewhere:Word",), "task elsewhere:Word must be a subclass"),
        (
            ("elsewhere:Sentences", "--option", "far=1"),
            "--option far=1: expected NAME=VALUE with NAME one of centred, nearest",
        ),
    ],
)
def test_errors_about_a_class_of_another_package(own, capsys, tiny_folder, words, message):
    assert message in fails(capsys, "evaluate", tiny_folder, *words, "--test", "test.tsv", "--langs", "en", "de")


def test_a_study_of_a_class_of_another_package(own, capsys, tiny_folder):
    path = study(own, tiny_folder, "elsewhere:Sentences", "nearest = 5")
    works(capsys, "study", path, "--out", own / "out", "-q")
    (record,) = map(json.loads, (own / "out" / "results.jsonl").read_text().splitlines())
    assert (record["task"], record["value"]) == ("mine", 1.0)
    assert record["settings"]["nearest"] == 5
    line = fails(capsys, "study", study(own, tiny_folder, "elsewhere:Sentences", "far = 5"), "--out", own / "out")
    assert "unknown setting 'far' of tasks.mine, expected task, encoders" in line
    assert "centred, nearest" in line


def test_the_default_from_files_passes_the_inputs(own):
    from calque.tasks import Task

    class Whole(Task):
        def __init__(self, inputs, *, size: int = 2):
            self.inputs, self.size = inputs, size

        def evaluate(self, encoder, *, progress=False):
            return []

    inputs = Inputs("whole", ["test.tsv"], [("en", "de")])
    (made,) = Whole.from_files(inputs, size=3)
    assert (made.inputs, made.size) == (inputs, 3)
    assert option_names(Whole) == ["size"]


@pytest.mark.parametrize("task", TASKS)
def test_rows_agree_with_their_classes(task):
    row, kind = TASKS[task], TASKS.load(task)
    assert {*row.files, *row.options} - {*FIELDS} == set(option_names(kind))
    assert "test" in row.files
    if hasattr(kind, "names"):
        assert (row.files, row.languages) == (kind.files, kind.languages)
        assert not kind.names or task in kind.names
    assert row.help.endswith((".", "?"))


def test_users_of_an_option():
    assert users("similarity") == ["retrieval", "sentences", "lexicon"]
    assert users("upos") == ["parsing"]
    assert users("test") == users("layer") == []


def test_files_that_a_task_does_not_read_are_refused(tiny_folder):
    from calque.runs.evaluate import evaluate

    with pytest.raises(SettingError, match="word-alignment does not use train, but only test, links"):
        evaluate(str(tiny_folder), Inputs("word-alignment", ["x"], [("en", "de")], train=["y"]))
