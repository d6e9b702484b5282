"""Test that all files of a study are opened before its first step runs."""

import gzip

import pytest

from calque.errors import InputError
from calque.runs.study import study
from study_parts import DICTIONARY

#: a study that reads every kind of file
PLAN = (
    """
seeds = 1
runs = 1
[encoders]
words = "en=en.vec,de=de.vec"
[encoders.own.pretrain]
model = "elmo"
texts = { en = "en.txt", de = "de.txt" }
[methods]
base = {}
rotation = {}
[supervision.parallel]
de = "pairs.tsv"
"""
    + DICTIONARY
    + """[tasks.retrieval]
test = { de = "test.tsv" }
train = { de = "pairs.tsv" }
links = { de = "test.align" }
[tasks.lexicon]
texts = { en = "en.txt", de = "de.txt" }
test = { de = "entries.tsv" }
[tasks.ner]
train = ["ner.train.en.tsv"]
dev = ["ner.dev.en.tsv"]
test = ["ner.test.de.tsv"]
ceiling = ["ner.ceiling.de.tsv"]
head = "linear"
epochs = 1
[tasks.wsd]
train = "train.data.xml"
test = ["test.data.xml"]
first_senses = "index.sense"
"""
)
TAGS = "a O\nb B-PER\n\nc O\n\n"
SENSES = '<corpus><sentence><instance id="i0" lemma="a" pos="NOUN">a</instance></sentence></corpus>'
FILES = {
    "en.vec": "2 2\na 1 0\nb 0 1\n",
    "de.vec": "2 2\nx 1 0\ny 0 1\n",
    "en.txt": "a b\n",
    "de.txt": "x y\n",
    "pairs.tsv": "a b\tx y\n",
    "test.tsv": "a b\ty x\n",
    "test.align": "0-1 1-0\n",
    "entries.tsv": "a\tx\nb\ty\n",
    **{f"ner.{part}.tsv": TAGS for part in ("train.en", "dev.en", "test.de", "ceiling.de")},
    **{f"{part}.data.xml": SENSES for part in ("train", "test")},
    **{f"{part}.gold.key.txt": "i0 a%1:00:00::\n" for part in ("train", "test")},
    "index.sense": "a%1:00:00:: 1 1 1\n",
}


@pytest.fixture
def plan(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    path = tmp_path / "study.toml"
    path.write_text(PLAN)
    return path


def refused(plan):
    """Return the error of a study that must not run a single step."""
    with pytest.raises(InputError) as error:
        study(plan)
    assert not (plan.parent / "study").exists()
    assert str(error.value).startswith(f"{plan}: ")
    return str(error.value).removeprefix(f"{plan}: ")


PLACES = {
    "en.vec": "encoders.words",
    "en.txt": "encoders.own.pretrain.texts.en",
    "pairs.tsv": "supervision.parallel.de",
    "entries.tsv": "supervision.dictionary.de",
    "test.tsv": "tasks.retrieval.test.de",
    "test.align": "tasks.retrieval.links.de",
    "ner.train.en.tsv": "tasks.ner.train",
    "ner.dev.en.tsv": "tasks.ner.dev",
    "ner.test.de.tsv": "tasks.ner.test",
    "ner.ceiling.de.tsv": "tasks.ner.ceiling",
    "train.data.xml": "tasks.wsd.train",
    "test.data.xml": "tasks.wsd.test",
    "index.sense": "tasks.wsd.first_senses",
}


@pytest.mark.parametrize("name", PLACES)
def test_a_missing_file_is_found_before_the_first_step(plan, name):
    (plan.parent / name).rename(plan.parent / f"old-{name}")
    said = refused(plan)
    assert said.startswith(f"{PLACES[name]}: ")
    assert f"{name}: no such file or folder; " in said
    assert "did you mean " in said


@pytest.mark.parametrize("name", PLACES)
def test_an_empty_file_is_found_before_the_first_step(plan, name):
    (plan.parent / name).write_text("")
    assert refused(plan).startswith(f"{PLACES[name]}: ")


def test_parallel_text_is_checked_in_the_format_of_the_study(plan):
    plan.write_text(f'{PLAN}[words]\nformat = "fast-align"\n')
    assert "1 × missing column" in refused(plan)


@pytest.mark.parametrize("name", PLACES)
def test_a_truncated_compressed_file_is_found_before_the_first_step(plan, name):
    packed = gzip.compress(FILES[name].encode() * 50)
    (plan.parent / name).write_bytes(packed[: len(packed) // 2])
    refused(plan)


@pytest.mark.parametrize(
    ("name", "text", "fact"),
    [
        ("pairs.tsv", "one column\nanother\n", "no sentence pair could be read"),
        ("test.align", "no links\n", "'no' is not a link"),
        ("entries.tsv", "a\n", "one word, expected a word and its translation"),
        ("ner.test.de.tsv", "a B-NEW\n", "NEW"),
        ("test.gold.key.txt", "i9 a%1:00:00::\n", "i0"),
        ("train.data.xml", "not XML", "train.data.xml"),
    ],
)
def test_a_file_of_another_kind_is_found_before_the_first_step(plan, name, text, fact):
    (plan.parent / name).write_text(text)
    assert fact in refused(plan)


def test_all_missing_files_are_named_in_one_message(plan):
    for name in ("test.tsv", "ner.dev.en.tsv", "index.sense"):
        (plan.parent / name).unlink()
    said = refused(plan)
    assert said.startswith("tasks.retrieval.test.de: ")
    assert said.endswith("(and 2 more: tasks.ner.dev, tasks.wsd.first_senses)")


def test_a_setting_that_a_task_cannot_use_is_found_before_the_first_step(plan):
    plan.write_text(PLAN.replace('head = "linear"', 'head = "liner"'))
    assert refused(plan).endswith(
        "head must be one of bilstm-crf, linear, linear-crf, got 'liner'; did you mean linear?"
    )


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("./mini", "no such file or folder"),
        ("empty", "this folder contains no encoder"),
        ("minni", "'minni' is neither a local folder nor an encoder on the Hugging Face hub"),
        ("encoders/e6-small", "did you mean e5-small?"),
    ],
)
def test_an_encoder_that_does_not_exist_is_found_before_the_first_step(
    plan, name, fact, monkeypatch
):
    monkeypatch.setattr("calque.encoders.hub.unconnected", lambda: True)
    (plan.parent / "empty").mkdir()
    (plan.parent / "encoders" / "e5-small").mkdir(parents=True)
    plan.write_text(PLAN.replace('words = "en=en.vec,de=de.vec"', f'words = "{name}"'))
    said = refused(plan)
    assert said.startswith("encoders.words: ")
    assert fact in said
    if name == "minni":
        assert said.endswith("package.module:Class; did you mean mini?")
