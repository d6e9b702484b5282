"""Tests of writing study files."""

import tomllib

from calque.runs.study import read_study
from calque.runs.study.writing import study_text

NAMES = [
    "plain",
    "",
    "two words",
    'quote " and \\ backslash',
    "tab\t, line\n, nul-free \x7f",
    "čeština 中文 🙂",
]


def test_tables_are_read_as_they_were_written():
    tables = {
        "source": "en",
        "runs": 3,
        "rate": 2e-05,
        "tune": True,
        "methods": {name: {"text": name, "list": [name, 1, [False]]} for name in NAMES},
        "words": {"model": "hmm", "of": dict.fromkeys(NAMES, 1.5)},
        "empty": {},
        "encoders": {"e": {"path": "x", "pooling": None, "deep": {"a": None, "b": []}}},
        "out": None,
    }
    expected = {name: value for name, value in tables.items() if name not in ("out", "empty")}
    expected["encoders"] = {"e": {"path": "x", "deep": {"b": []}}}
    text = study_text(tables, "First line\nsecond line")
    assert text.startswith("# First line\n# second line\n")
    assert tomllib.loads(text) == expected


def test_a_written_study_can_be_read(tmp_path):
    path = tmp_path / "study.toml"
    tables = {
        "runs": 2,
        "encoders": {"a": {"path": "mini", "pooling": None}},
        "methods": {"base": {}, "contrastive": {"lora": 8}},
        "supervision": {"text": {"de": "a b.tsv", "limit": 5}},
        "tasks": {"pos, tuned": {"task": "pos", "train": ["en=a"], "test": ["de=b"], "tune": True}},
    }
    path.write_text(study_text(tables), encoding="utf-8")
    plan = read_study(path)
    assert plan.runs == 2
    assert plan.encoders["a"].path == "mini"
    assert plan.methods["contrastive"].options == {"lora": 8}
    assert plan.supervision["text"].options == {"de": "a b.tsv"}
    assert plan.tasks["pos, tuned"].options["tune"] is True
