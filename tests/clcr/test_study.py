"""Tests of studies that include CLCR."""

from __future__ import annotations

import re
import tomllib

import pytest
from benchmarks.planted_key_points import write_world

from calque.errors import InputError
from calque.report.study_tables import tables
from calque.runs import steps
from calque.runs.steps import Steps
from calque.runs.study import read_study, study
from calque.runs.study.grid import Grid
from calque.runs.study.work import WORK
from toml_text import toml_file

# bb is an invented language
pytestmark = pytest.mark.filterwarnings("ignore:.*bb is not a language code")

PLAN = """
source = "aa"
towards = "aa"
seeds = 1
runs = 1
words = { model = "fast-align" }

[encoders]
planted = "aa=aa,bb=bb"
forms = "calque.encoders.random_vectors:RandomVectors"
[encoders.own.pretrain]
apart = true
texts = { aa = "train.aa", bb = "train.bb" }
limit = 60
updates = 3
batch = 4
dim = 8
layers = 1
heads = 2
inner = 8
vocabulary = 120
length = 16
positions = 64

[methods.base]
[methods.linear]
method = "clcr"
linear = true
steps = "transform"
epochs = [0.5, 0, 0, 0, 1]
encoders = ["own"]
[methods.clcr]
epochs = [1.0, 0.1, 0.1, 2.0, 1.0]
compare = true
encoders = ["planted", "own"]
[methods.clcr.views]
T = { steps = "transform" }
"T+E" = { steps = "transform,extract" }
"T+E, 0.9" = { steps = "transform,extract", delta = 0.9 }
all = { steps = "transform,extract,reorder" }
"T+pGA" = { steps = "pivots", translations = { bb = ["nli.test.aa.tsv", "nli.test.bb.tsv"] } }

[supervision.parallel]
pretokenized = true
limit = 150
bb = "train.tsv"

[tasks.nli]
encoders = ["planted", "own"]
methods = ["T", "T+E", "all", "T+pGA"]
pretokenized = true
epochs = 1
hidden = 4
head = "mean"
train = ["aa=nli.train.aa.tsv"]
dev = ["aa=nli.dev.aa.tsv"]
test = ["aa=nli.test.aa.tsv", "bb=nli.test.bb.tsv"]

[tasks.probing]
encoders = ["own", "forms"]
methods = ["base", "T", "T+E", "T+E, 0.9"]
epochs = 1
hidden = 4
width = 4
train = ["pos.aa.tsv"]
test = ["pos.aa.tsv"]
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_world(folder, pairs=150, test=4, examples=40, dim=8, noise=0.05)
    lines = (folder / "train.aa").read_text().splitlines()[:30]
    tags = ("".join(f"{word}\t{word[:3]}\n" for word in line.split()) for line in lines)
    (folder / "pos.aa.tsv").write_text("\n".join(tags))
    (folder / "study.toml").write_text(PLAN)
    return folder / "study.toml"


def laid_out(plan, path):
    path.write_text(toml_file(plan), encoding="utf-8")
    return Grid(read_study(path), Steps(path.parent / "steps", WORK))


@pytest.fixture
def files_exist(monkeypatch):
    """Make studies treat every file as existing."""
    monkeypatch.setattr(steps, "digest", lambda path: "0")


# -- the plan --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "value", "fact"),
    [
        (
            ("methods", "clcr", "views"),
            {"T": {"steps": "extract"}},
            "clcr.views.T: steps must be transform, or",
        ),
        (
            ("methods", "clcr", "views"),
            {"P": {"steps": "pivots"}},
            "clcr.views.P: translations must be given if and only if",
        ),
        (
            ("methods", "clcr", "views"),
            {"P": {"steps": "pivots", "delta": 0.1, "translations": {"bb": ["a", "b"]}}},
            "clcr.views.P: delta must not be set for pivots",
        ),
        (
            ("methods", "linear", "views"),
            {"L": {"steps": "transform,extract"}},
            "linear.views.L: extract is not trained with steps",
        ),
        (
            ("tasks", "pos"),
            {"train": ["aa=a"], "test": ["bb=b"]},
            "pos: pos needs vectors of words, but 'T.E' of methods.clcr has",
        ),
        (
            ("tasks", "retrieval"),
            {"test": {"bb": "a"}, "methods": ["T", "all"]},
            "retrieval needs vectors of words, but 'all' of",
        ),
    ],
)
def test_errors_in_a_study_are_reported_before_training(place, value, fact, tmp_path, files_exist):
    plan = tomllib.loads(PLAN)
    within = plan
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = value
    path = tmp_path / "study.toml"
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: .*{fact}"):
        laid_out(plan, path)


# -- the study -------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:the classifier of key points cannot tell words apart")
@pytest.mark.filterwarnings("ignore::calque.tasks.overlap.OverlapWarning")
def test_a_study_runs_from_texts_to_tables(plan):
    said: list[str] = []
    records = study(plan, say=said.append)
    assert "pretraining: 2 of 2 steps to do" in said
    assert "joining encoders: 1 of 1 steps to do" in said
    assert "aligning: 3 of 3 steps to do" in said
    assert "evaluating: 13 of 13 steps to do" in said
    rows = {}
    for record in records:
        rows.setdefault(record["task"], set()).add((record["encoder"], record["method"]))
    assert rows["nli"] == {
        (name, row) for name in ("planted", "own") for row in ("T", "T+E", "all", "T+pGA")
    }
    assert rows["probing"] == {
        ("forms", "base"),
        *(("own", row) for row in ("base", "T", "T+E", "T+E, 0.9")),
    }
    assert rows["distance"] == {("planted", "clcr"), ("own", "clcr"), ("own", "linear")}
    assert rows["key-points"] == {("planted", "clcr"), ("own", "clcr")}
    assert ("planted", "clcr") in rows["order"] <= rows["key-points"]
    assert {
        r["languages"][-1] for r in records if (r["task"], r["method"]) == ("nli", "T+pGA")
    } == {"aa", "bb"}
    recall = {
        r["method"]: r["value"]
        for r in records
        if (r["task"], r["metric"], r["encoder"]) == ("probing", "recall", "own")
    }
    assert recall["T+E, 0.9"] <= recall["T+E"]
    assert all(
        record["training_seed"] == 0
        for record in records
        if record["task"] in ("distance", "order")
    )
    shown = tables(records)
    for title, columns in (
        ("Distance: relative distance, lower is better", "bb-aa | aa-bb"),
        ("Key-points: accuracy, per cent, higher is better", "aa | bb"),
    ):
        assert f"**{title}**\n\n| method | {columns} | " in shown
    assert "**Order: bleu-4, per cent, higher is better**" in shown
    for row in (
        "own · linear: transform",
        "own · clcr: labels as they are",
        "planted · clcr: relative, n = 10",
    ):
        assert f"| {row} |" in shown
    said.clear()
    assert study(plan, say=said.append) == records
    assert "aligning: 0 of 3 steps to do" in said
