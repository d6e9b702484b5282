"""Test that study files with any content are either accepted or rejected with a one-line error."""

import copy
import datetime
import math
import re
import tomllib
from pathlib import Path

import pytest

from calque.errors import CalqueError, InputError
from calque.runs import steps
from calque.runs.steps import Steps
from calque.runs.study import read_study
from calque.runs.study.grid import Grid
from calque.runs.study.work import WORK
from calque.senses import study as pretraining
from toml_text import toml_file

#: a study that uses every setting, as short as possible
PLAN = """
source = "en"
towards = "en"
seeds = 2
runs = 1
data = "."
out = "study"
words = { model = "hmm", symmetrize = "union", seed = 1 }

[encoders]
plain = "some/encoder"
vectors = "en=a.vec,de=b.vec"
[encoders.layered]
path = "other/encoder"
layers = [-1]
pooling = "mean"
bidirectional = true
[encoders.own.pretrain]
model = "elmo"
apart = true
texts = { en = "a.txt", de = "b.txt" }
filters = [[1, 4], [2, 4]]
dropout = 0.1
updates = 3
[encoders.bert.pretrain]
texts = { en = "a.txt", de = "b.txt" }
limit = 10
vocabulary = 100
[encoders.sense-aware]
runs = 2
[encoders.sense-aware.pretrain]
model = "elmo"
preset = "tiny"
pairs = true
texts = { en = "a.txt", de = "b.txt" }
dictionaries = { en-de = "d.tsv" }
senses = { senses = 3, start = "fresh", below = 0.2 }

[methods]
base = {}
rotation = { layers = [1, 2], combine = "mean", supervision = "parallel" }
finetune = { epochs = 2, learning_rate = 1e-4, layers = [3], supervision = ["parallel"] }
linear = { supervision = "dictionary", refine = 2, held_out = 0.2, encoders = ["own", "sense-aware"] }
adversarial = { restarts = 2, start_options = { epochs = 1, hidden = 4 } }

[supervision.parallel]
limit = 100
de = "a.tsv"
[supervision.dictionary]
kind = "dictionary"
entries = [0, 10]
most = 100
texts = { en = "a.txt", de = "b.txt" }
de = "d.tsv"
[supervision.nothing]
kind = "text"
texts = { en = "a.txt", de = "b.txt" }

[tasks.retrieval]
limit = 10
candidates = "linked"
contextual = false
test = { de = "a.tsv" }
train = { de = "b.tsv" }
[tasks.word-alignment]
method = "softmax"
test = { de = "gold.tsv" }
[tasks.lexicon]
entries = [10, 20]
texts = { en = "a.txt", de = "b.txt" }
test = { de = "d.tsv" }
[tasks.ner]
train = ["ner.en.tsv"]
dev = "ner.dev.en.tsv"
test = ["de=ner.tsv", "ner.es.tsv"]
rename = { MISC = "" }
epochs = 1.5
head = "linear"
[tasks.parsing]
train = ["a.en.conllu"]
test = ["b.de.conllu"]
upos = 0
[tasks.nli]
seeds = 3
train = ["a.en.tsv"]
test = ["b.de.tsv"]
ceiling = ["de=c.tsv"]
head = "esim"
[tasks.senses]
task = "wsd"
train = "en.data.xml"
test = ["x.data.xml"]
encoders = ["sense-aware", "bert"]
methods = "base"
"""
WRONG = [
    "a",
    "",
    "a\0b",
    "x" * 5000,
    3,
    -1,
    10**30,
    0.5,
    math.nan,
    True,
    [],
    ["a", "a"],
    [{"a": 1}],
    {},
    {"": {}},
    datetime.date(2024, 2, 3),
]
RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


def places(value, here=()):
    """Yield the path of every table, list, list element and value."""
    if here:
        yield here
    for key, each in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from places(each, (*here, key))


def changed(plan, place, value):
    """Return a plan in which the value at a path is replaced; unchanged parts are shared."""
    first, *rest = place
    plan = copy.copy(plan)
    plan[first] = changed(plan[first], rest, value) if rest else value
    return plan


def laid_out(plan, path):
    """Return the keys of all steps without running the steps."""
    path.write_text(toml_file(plan), encoding="utf-8")
    grid = Grid(read_study(path), Steps(path.parent / "steps", WORK))
    return [step.key for phase in grid.phases.values() for step in phase]


def what_is_said(plan, path):
    """Return the error message of an invalid plan; unexpected exceptions are not caught."""
    try:
        laid_out(plan, path)
    except CalqueError as error:
        return str(error)
    return None


@pytest.fixture
def unread(monkeypatch):
    """Replace the digest of files with a constant, so any path is accepted."""
    monkeypatch.setattr(steps, "digest", lambda path: "0")


@pytest.fixture
def once(monkeypatch):
    """Cache the validation of pretraining settings."""
    check, said = pretraining.check_pretraining, {}

    def remembered(*given):
        if (key := repr(given)) not in said:
            try:
                said[key] = check(*given)
            except CalqueError as error:
                said[key] = error
        if said[key] is not None:
            raise said[key]

    monkeypatch.setattr(pretraining, "check_pretraining", remembered)


def test_any_value_in_a_study_is_accepted_or_raises_a_one_line_error(tmp_path, unread, once):
    plan, path = tomllib.loads(PLAN), tmp_path / "study.toml"
    assert laid_out(plan, path)
    refused = tried = 0
    for number, place in enumerate(places(plan)):
        for value in WRONG[number % 4 :: 4]:
            tried += 1
            said = what_is_said(changed(plan, place, value), path)
            refused += said is not None
            assert said is None or "\n" not in said, (place, value)
            assert said is None or str(path) in said or "no such file" in said, (place, value, said)
    assert refused > tried / 2


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_every_recipe_is_a_valid_study(file, tmp_path, unread):
    assert laid_out(tomllib.loads(file.read_text(encoding="utf-8")), tmp_path / "study.toml")


@pytest.mark.parametrize(
    ("place", "value", "fact"),
    [
        (("seeds",), "a", "seeds = 'a', expected a whole number from 1 to 1000"),
        (
            ("towards",),
            "fr",
            "towards = 'fr', but supervision.parallel has the languages en and de; expected 'en'",
        ),
        (("encoders", "plain"), "a\0b", "encoders.plain = .*, expected text on one short line"),
        (
            ("encoders", "layered", "layers"),
            [],
            r"layers = \[\], expected a list of whole numbers from -1000 to 1000",
        ),
        (
            ("encoders", "bert", "pretrain", "senses"),
            {"warmup": 10**6},
            "encoders.bert.pretrain: the warm-up for senses must",
        ),
        (
            ("encoders", "bert", "pretrain", "dictionaries"),
            {"en-de": "d.tsv"},
            "dictionaries need senses, and cannot be combined",
        ),
        (
            ("methods", "linear", "encoders"),
            "x",
            "methods.linear.encoders: unknown 'x', expected plain, vectors",
        ),
        (
            ("methods", "finetune", "epoch"),
            1,
            "unknown setting 'epoch' of methods.finetune .* did you mean epochs?",
        ),
        (("methods", "finetune", "epochs"), 0, "methods.finetune: epochs.* must be above 0"),
        (
            ("supervision", "parallel", "en"),
            "x.tsv",
            "supervision.parallel.en: en is the source language",
        ),
        (
            ("supervision", "dictionary", "entries"),
            [5, 2],
            r"entries = \[5, 2\], expected \[first\] or \[first, end\]",
        ),
        (
            ("tasks", "retrieval", "train"),
            {"fr": "x"},
            "tasks.retrieval.train has a text in fr, but .*test has none",
        ),
        (
            ("tasks", "senses", "train"),
            ["a.xml", "b.xml"],
            "tasks.senses.train = .*, expected text .* or a list of 1",
        ),
    ],
)
def test_errors_name_the_file_the_key_and_the_expected_value(place, value, fact, tmp_path, unread):
    path = tmp_path / "study.toml"
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: .*{fact}"):
        laid_out(changed(tomllib.loads(PLAN), place, value), path)


#: misspelt keys and values in every kind of table, and the name that the message suggests
MISSPELT = [
    (("task",), {"ner": {}}, "tasks"),
    (("seed",), 1, "seeds"),
    (("words", "modle"), "hmm", "model"),
    (("words", "model"), "gibs", "gibbs"),
    (("words", "symmetrize"), "grow-diag-finl", "grow-diag-final"),
    (("encoders", "layered", "layer"), [1], "layers"),
    (("encoders", "layered", "pooling"), "fist", "first"),
    (("encoders", "own", "pretrain", "text"), {"en": "a.txt"}, "texts"),
    (("encoders", "own", "pretrain", "model"), "emlo", "elmo"),
    (("encoders", "sense-aware", "pretrain", "preset"), "tinny", "tiny"),
    (("encoders", "sense-aware", "pretrain", "senses", "strat"), "fresh", "start"),
    (("methods", "linear", "encoders"), ["owm"], "own"),
    (("methods", "contrastiv"), {}, "contrastive"),
    (("methods", "mine"), {"method": "rotatoin"}, "rotation"),
    (("methods", "mine"), {"method": "Contrastive"}, "contrastive"),
    (("methods", "rotation", "combin"), "mean", "combine"),
    (("methods", "rotation", "supervision"), "paralel", "parallel"),
    (("methods", "finetune", "supervision"), ["dictionary", "paralel"], "parallel"),
    (("methods", "finetune", "learning-rate"), 1e-4, "learning_rate"),
    (("methods", "adversarial", "start_options", "epoch"), 1, "epochs"),
    (("methods", "mine"), {"start": "adverserial"}, "adversarial"),
    (("supervision", "parallel", "limt"), 10, "limit"),
    (("supervision", "parallel", "kinds"), "parallel", "kind"),
    (("supervision", "dictionary", "kind"), "dictionnary", "dictionary"),
    (("supervision", "dictionary", "entrys"), [0, 10], "entries"),
    (("tasks", "retreival"), {"test": {"de": "a.tsv"}}, "retrieval"),
    (("tasks", "mine"), {"task": "NER", "test": ["a.de.tsv"]}, "ner"),
    (("tasks", "retrieval", "candidate"), "linked", "candidates"),
    (("tasks", "retrieval", "similarity"), "csl", "csls"),
    (("tasks", "ner", "trian"), ["a.en.tsv"], "train"),
    (("tasks", "ner", "test-limit"), 3, "test_limit"),
    (("tasks", "ner", "select"), "traget", "target"),
    (("tasks", "senses", "encoders"), ["berd"], "bert"),
    (("tasks", "senses", "methods"), "bsae", "base"),
]


@pytest.mark.parametrize(("place", "value", "name"), MISSPELT)
def test_every_misspelt_key_or_value_suggests_the_similar_name(
    place, value, name, tmp_path, unread
):
    said = what_is_said(changed(tomllib.loads(PLAN), place, value), tmp_path / "study.toml")
    assert said is not None
    assert said.endswith(f"; did you mean {name}?")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("methods", "x"), {}),
        (("methods", "mine"), {"method": "x:"}),
        (("tasks", "x"), {"test": ["a.de.tsv"]}),
        (("tasks", "mine"), {"task": "x", "test": ["a.de.tsv"]}),
    ],
)
def test_an_unknown_method_or_task_mentions_classes_of_other_packages(
    place, value, tmp_path, unread
):
    said = what_is_said(changed(tomllib.loads(PLAN), place, value), tmp_path / "study.toml")
    assert said is not None
    assert "package.module:Class" in said
    assert "did you mean" not in said


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "seeds = " + "9" * 5000, "seeds = \xff", "seeds = 1\nseeds = 2"]
)
def test_invalid_toml_is_rejected(text, tmp_path):
    (tmp_path / "study.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"study\.toml: cannot read the study"):
        read_study(tmp_path / "study.toml")


def test_missing_files_are_reported_before_anything_runs(tmp_path):
    with pytest.raises(InputError, match=r"a\.tsv: no such file or folder"):
        laid_out(tomllib.loads(PLAN), tmp_path / "study.toml")


def test_a_method_can_have_its_own_number_of_runs(tmp_path, unread):
    plan = {
        "runs": 3,
        "encoders": {"plain": "some/encoder"},
        "supervision": {"parallel": {"de": "a.tsv"}},
        "methods": {"contrastive": {}, "once": {"method": "contrastive", "seed": 4, "runs": 1}},
        "tasks": {"consistency": {"test": ["a.en.txt"]}},
    }
    path = tmp_path / "study.toml"
    path.write_text(toml_file(plan), encoding="utf-8")
    study = read_study(path)
    seeds = {name: method.seeds(study.runs) for name, method in study.methods.items()}
    assert seeds == {"contrastive": [0, 1, 2], "once": [4]}
    assert len(Grid(study, Steps(tmp_path / "steps", WORK)).phases["aligning"]) == 4
