"""`calque advise`: what it says to a table, how a study that is done becomes one, and all of it from outside."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calque.analyses.advice import Cell, Question
from calque.errors import InputError, SettingError
from calque.runs import advice_fit
from calque.runs import advise as advising
from calque.runs.advice_fit import fit
from calque.runs.advice_table import AdviceTable, Row
from calque.runs.advise import answer
from command import fails, run
from planted import tagged, write_tags
from planted_gains import TASKS, planted_cells


@pytest.fixture(scope="module")
def cells():
    return planted_cells(amounts=(500, 5000))


def question(task="pos", lang="xx", form=0.3, pairs=2000.0):
    return Question("mini", lang, task, {"pairs": pairs, "form": form, "probe": 0.97, "gradient": TASKS[task] / 50})


# -- the table ---------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def table(cells):
    rows = [Row("contrastive", False, "test", cell) for cell in cells]
    for k, cell in enumerate(cells):
        if cell.about.lang == "de":
            rows.append(Row("contrastive", True, "test", Cell(replace(cell.about, lang="en"), -1 + k % 3 / 10, 0.2)))
    return AdviceTable({"source": "en", "study": "planted.toml"}, rows)


def asked(table, **more):
    given = {"encoder": "mini", "method": "contrastive", "langs": ("en", "xx"), "question": question(), **more}
    return answer(table=table, **given)


def test_what_is_said(table):
    said = asked(table)
    assert said.outcome == "align"
    low, high = (round(end) for end in said.target.interval())
    assert said.sentence.startswith(f"align: +{low} to +{high} points expected in xx; −1")
    assert said.sentence.endswith(" in en")
    assert said.source.interval()[0] < -0.9 < said.source.interval()[1]
    assert asked(table, question=question("qa")).sentence.startswith("do not align for qa: −")
    both = asked(table, question=question("sentiment", form=0.45, pairs=600.0))
    assert both.sentence.startswith("do not know: −")
    assert "points in xx, on both sides of zero" in both.sentence
    assert asked(table, method="cca").sentence == "do not know: the fit has no cca, only contrastive"
    other = asked(table, langs=("fr", "xx"))
    assert other.sentence == "do not know: the fit is of tasks learnt in en, not in fr"
    none = asked(None)
    assert none.sentence.startswith("do not know: there is no fit yet")
    assert "points" not in str(none)
    plain = json.loads(json.dumps(said.to_dict()))
    assert plain["expected"]["xx"]["low"] == said.target.interval()[0]
    assert plain["outcome"] == "align"


def test_a_table_comes_back_as_it_was(table, tmp_path):
    table.save(tmp_path / "advice.json")
    again = AdviceTable.open(tmp_path / "advice.json")
    assert again.about == table.about
    assert [row.to_dict() for row in again.rows] == [row.to_dict() for row in table.rows]
    assert set(again.cells("contrastive", source=True)[0].about.features) == {"pairs", "gradient"}
    assert asked(again).target.gain == pytest.approx(asked(table).target.gain, abs=0.01)


def test_what_is_no_table_is_told(tmp_path):
    path = tmp_path / "advice.json"
    for text in ("", "[]", '{"about": {"source": "en"}, "cells": [{"gain": 1}]}', '{"about": {}, "cells": []}'):
        path.write_text(text)
        with pytest.raises(InputError, match="is no table of advice, as `calque advise --fit` writes it"):
            AdviceTable.open(path)
    with pytest.raises(InputError, match="cannot be read"):
        AdviceTable.open(tmp_path / "none.json")


# -- from a study ------------------------------------------------------------------------------------------------------
STUDY = """
seeds = 1
[encoders]
tiny = "{encoder}"
[methods.base]
[methods.contrastive]
[supervision.some]
limit = 35
de = "train.de.tsv"
es = "train.es.tsv"
fr = "train.fr.tsv"
[tasks.names]
task = "ner"
train = ["names.en.tsv"]
test = ["en=test.en.tsv", "de=test.de.tsv", "es=test.es.tsv", "fr=test.fr.tsv", "it=test.it.tsv"]
epochs = 1
hidden = 8
[tasks.pos]
train = ["names.en.tsv"]
test = ["de=test.de.tsv", "es=test.es.tsv", "fr=test.fr.tsv"]
hidden = 8
"""
GAINS = {"names": -5.0, "pos": 10.0}


def record(task, lang, method, learnt, value, seed=None):
    return {
        "task": task, "data": f"test.{lang}.tsv", "languages": ["en", lang], "metric": "f1", "value": value,
        "low": value - 0.01, "high": value + 0.01, "n": 100, "seed": 0, "settings": {"protocol": "zero-shot",
        "features": "frozen"}, "percent": True, "encoder": "tiny", "layer": None, "method": method, "supervision": learnt,
        "training_seed": seed,
    }  # fmt: skip


@pytest.fixture(scope="module")
def studied(tmp_path_factory, tiny_folder):
    """A study whose encoders nobody trained: its results are written by hand."""
    folder = tmp_path_factory.mktemp("advised")
    (folder / "study.toml").write_text(STUDY.format(encoder=tiny_folder))
    rng = np.random.default_rng(0)
    common, records = ["the", "cat", "sees", "house", "time", "water"], []
    write_tags(tagged(40, "en"), folder / "names.en.tsv")
    for lang in ("de", "es", "fr"):
        rows = [[common[k] for k in rng.integers(0, 6, rng.integers(2, 7))] for _ in range(40)]
        text = [f"{' '.join(row)}\t{' '.join(word[::-1] + lang for word in row)}\n" for row in rows]
        (folder / f"train.{lang}.tsv").write_text("".join(text))
    for task, own in GAINS.items():
        for lang in ("en", "de", "es", "fr", "it"):
            records.append(record(task, lang, "base", "", 0.5))
            gain = -2 if lang == "en" else own + rng.normal(0, 0.5)
            for seed, more in ((0, -0.2), (1, 0.2)):
                records.append(record(task, lang, "contrastive", "some", 0.5 + (gain + more) / 100, seed))
    records.append({**record("pos", "de", "contrastive", "some", 0.1), "metric": "recall"})
    (folder / "study").mkdir()
    (folder / "study" / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    return folder


@pytest.mark.filterwarnings("ignore::calque.errors.CalqueWarning")
def test_a_study_becomes_a_table_and_the_table_advice(
    studied, capsys, tiny_folder, tiny_encoder, monkeypatch, tmp_path
):
    """The gradients of the fit are made up, those of the question are not."""
    said, asked_for = [], []

    def made_up(encoder, task, train, text, options, *, pretokenized):
        asked_for.append((task, train, options, text.sentence_pairs, pretokenized))
        return GAINS["names" if task == "ner" else task] / 20

    monkeypatch.setattr(advice_fit, "gradient_of", made_up)
    table = fit(studied / "study.toml", say=said.append)
    train = f"en={studied / 'names.en.tsv'}"
    assert ("ner", [train], {"epochs": 1, "hidden": 8}, 35, False) in [
        (task, [str(Path(file)) for file in files], *rest) for task, files, *rest in asked_for
    ]
    assert sum(line.startswith("features of") for line in said) == 3
    assert sum(line.startswith("gradient of") for line in said) == 6
    assert said[-1] == "cells of languages that were not aligned, left out: it 2"
    targets, sources = (table.cells("contrastive", source=source) for source in (False, True))
    assert (len(targets), len(sources)) == (6, 2)
    for cell in targets:
        assert cell.gain == pytest.approx(GAINS["names" if cell.about.task == "ner" else "pos"], abs=2)
        # Two trainings, 0.4 points apart, and the texts of both: 2 / 3.92 points each.
        assert cell.error == pytest.approx(np.sqrt(0.2**2 + 2 * (2 / 3.919927969080108) ** 2), rel=1e-6)
        assert set(cell.about.features) >= {"pairs", "accuracy", "form", "probe", "gradient"}
        assert (cell.about.encoder, cell.about.features["pairs"]) == (tiny_encoder.fingerprint, 35)
    assert [round(cell.gain, 6) for cell in sources] == [-2, -2]
    assert table.about["encoders"] == {tiny_encoder.fingerprint: "tiny"}

    out = tmp_path / "advice.json"
    code, shown, err = run(capsys, "advise", "--fit", studied / "study.toml", "--out", out)
    assert code == 0, err
    assert "features of" not in err  # once is enough
    lines = shown.splitlines()
    assert lines[2].split()[:6] == ["contrastive", "each", "language", "6", "100%", "100%"]
    assert [row.to_dict() for row in AdviceTable.open(out).rows] == [row.to_dict() for row in table.rows]

    ask = ("advise", tiny_folder, "--langs", "en", "de", studied / "train.de.tsv", "--limit", 35, "-q")
    code, shown, err = run(
        capsys, *ask, "--task", "pos", "--fitted", out, "--train", studied / "names.en.tsv", "--option", "hidden=8"
    )
    assert code == 0, err
    lines = shown.splitlines()
    assert lines[0].split() == ["measured", "before", "alignment", "en-de"]
    assert lines[2].split() == ["sentence", "pairs", "35"]
    assert any(line.startswith("cosine of the task's gradient") for line in lines)
    code, shown, err = run(capsys, *ask, "--task", "pos", "--fitted", out)
    assert code == 0, err
    assert shown.splitlines()[-1].startswith("align: +"), shown
    code, shown, err = run(capsys, *ask, "--task", "ner", "--fitted", out, "--json")
    assert code == 0, err
    found = json.loads(shown)
    assert found["expected"]["de"]["low"] < -4 < found["expected"]["de"]["high"]
    assert found["fit"]["study"] == "study.toml"
    monkeypatch.setattr(advising, "SHIPPED", tmp_path / "none.json")
    code, shown, err = run(capsys, *ask, "--task", "pos")
    assert (code, shown.splitlines()[-1].partition(";")[0]) == (0, "do not know: there is no fit yet"), err


def test_what_cannot_be_asked(capsys, studied, tiny_folder, tmp_path):
    train = studied / "train.de.tsv"
    for arguments, said in (
        (("advise",), "advice needs an encoder, parallel text, --langs and --task"),
        (
            ("advise", "mini", train, "--langs", "en", "de", "--task", "lexicon"),
            "lexicon is not learnt in one language",
        ),
        (("advise", "mini", train, "--langs", "en", "de", "--task", "chess"), "unknown task 'chess'"),
        (("advise", "mini", train, "--langs", "en", "de", "--task", "pos", "--option", "hidden=8"), "--train FILE"),
        (
            ("advise", "mini", train, "--langs", "en", "de", "--task", "pos", "--out", "x"),
            "--out is for --fit STUDY.toml",
        ),
        (("advise", "--fit", studied / "study.toml"), "--fit needs a file to write to: --out FILE"),
        (("advise", "--fit", studied / "study.toml", "--task", "pos", "--out", "x"), "--task is not for --fit"),
        (("advise", "mini", "--fit", studied / "study.toml", "--out", "x"), "leave out mini"),
    ):
        assert said in fails(capsys, *arguments)
    (tmp_path / "study.toml").write_text((studied / "study.toml").read_text())
    with pytest.raises(InputError, match="no results yet: do `calque study"):
        fit(tmp_path / "study.toml")
    results = tmp_path / "others"
    results.mkdir()
    (results / "results.jsonl").write_text(json.dumps(record("pos", "de", "base", "", 0.5)) + "\n")
    with pytest.raises(SettingError, match="there is nothing to fit"):
        fit(studied / "study.toml", results=results)
