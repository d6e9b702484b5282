"""Test `calque evaluate` with several encoders."""

import json
import shutil

import numpy as np
import pytest

from calque.runs.evaluate import evaluate
from calque.tasks.inputs import Inputs
from command import fails, works
from planted import tagged, write_tags


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_folder):
    """Return a folder with parallel text, tagged text, and two encoders saved by calque."""
    from calque.encoders import load_encoder

    folder = tmp_path_factory.mktemp("several")
    (folder / "test.tsv").write_text("the a in\tder ein in\na in the e\tein in der und\n" * 4)
    write_tags(tagged(20, "en"), folder / "ner.train.en.tsv")
    write_tags(tagged(8, "de", 1), folder / "ner.test.de.tsv")
    load_encoder(tiny_folder, layer=1).save(folder / "first")
    load_encoder(tiny_folder, layer=3).save(
        folder / "ner"
    )  # an encoder can have the name of a task
    return folder


@pytest.fixture
def places(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return ["first", "ner"]


RETRIEVAL = ("--test", "test.tsv", "--langs", "en", "de", "-q")
NER = (
    "--train",
    "ner.train.en.tsv",
    "--test",
    "ner.test.de.tsv",
    "--epochs",
    1,
    "--seeds",
    2,
    "--head",
    "linear",
    "-q",
)


def scores_of(line):
    return {(each["metric"], *each["languages"]): each["value"] for each in line}


@pytest.mark.parametrize(("task", "options"), [("retrieval", RETRIEVAL), ("ner", NER)])
def test_several_encoders_get_the_scores_that_each_gets_alone(
    places, capsys, tmp_path, task, options
):
    out = tmp_path / "scores.jsonl"
    shown, _ = works(capsys, "evaluate", *places, task, *options, "--json", "--out", out)
    found = json.loads(shown)["encoders"]
    assert [each["name"] for each in found] == places
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert written == [score for each in found for score in each["scores"]]
    values = []
    for place, each in zip(places, found, strict=True):
        alone = json.loads(works(capsys, "evaluate", place, task, *options, "--json")[0])
        assert alone == {name: value for name, value in each.items() if name != "name"}
        values.append(scores_of(alone["scores"]))
    if task == "retrieval":  # with so little training, the scores of `ner` may be equal
        assert values[0] != values[1]


@pytest.mark.parametrize(("task", "options"), [("retrieval", RETRIEVAL), ("ner", NER)])
def test_the_table_has_one_row_per_encoder_and_question(places, capsys, task, options):
    shown, _ = works(capsys, "evaluate", *places, task, *options)
    alone = [
        works(capsys, "evaluate", place, task, *options)[0].split("\n\n")[0].splitlines()[2:]
        for place in places
    ]
    header, _, *rows = shown.split("\n\n")[0].splitlines()
    assert header.split()[0] == "encoder"
    assert len(rows) == len(alone[0]) + len(alone[1])
    for number, place in enumerate(places):
        mine = [row.split()[1:] for row in rows if row.split()[0] == place]
        assert mine == [row.split() for row in alone[number]]
    assert [
        row.split()[0] for row in rows[:2]
    ] == places  # rows that answer the same question are next to each other
    notes = shown.split("\n\n")[1].splitlines()
    assert len(notes) == len(set(notes))


def test_scores_are_recorded_in_the_folder_of_each_encoder(
    places, folder, capsys, tmp_path, monkeypatch
):
    for place in places:
        shutil.copytree(folder / place, tmp_path / place)
    shutil.copy(folder / "test.tsv", tmp_path)
    monkeypatch.chdir(tmp_path)
    shown, _ = works(capsys, "evaluate", *places, "retrieval", *RETRIEVAL, "--json", "--record")
    for each in json.loads(shown)["encoders"]:
        record = json.loads((tmp_path / each["name"] / "calque-run.json").read_text())
        assert scores_of(record["scores"]) == scores_of(each["scores"])


def test_layers_of_several_encoders_are_shown_in_blocks(places, capsys):
    shown, _ = works(capsys, "evaluate", *places, "retrieval", *RETRIEVAL, "--layers", "0,1")
    first, second = shown.split("\nner\n")
    assert first.startswith("first\ntest.tsv en-de\nlayer")
    assert second.startswith("test.tsv en-de\nlayer")


def test_names_are_checked_before_the_first_encoder_is_evaluated(places, capsys, monkeypatch):
    monkeypatch.setattr(
        "calque.runs.evaluate.evaluate_each",
        lambda *_, **__: pytest.fail("an encoder was evaluated"),
    )
    assert "given once, got first and ./first" in fails(
        capsys, "evaluate", "first", "./first", "retrieval", *RETRIEVAL
    )
    assert fails(capsys, "evaluate", "first", "fist", "retrieval", *RETRIEVAL).endswith(
        "; did you mean first?"
    )
    assert "got mini" not in fails(
        capsys, "evaluate", "first", "mini", "retrieval", *RETRIEVAL, "--record"
    )
    said = fails(capsys, "evaluate", "first", "ner", "retreival", *RETRIEVAL)
    assert said.endswith("or package.module:Class; did you mean retrieval?")


def test_one_encoder_is_evaluated_as_before(places, capsys):
    shown = json.loads(works(capsys, "evaluate", "first", "retrieval", *RETRIEVAL, "--json")[0])
    scores = evaluate("first", Inputs("retrieval", test=["test.tsv"], langs=[("en", "de")]))
    assert shown["value"] == scores[0].value
    assert len(shown["scores"]) == len(scores)
    assert np.isfinite(shown["value"])
