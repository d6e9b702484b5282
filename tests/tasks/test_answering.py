"""Question answering: what a head learns, and what counts as right."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from calque.corpora.squad import read_questions
from calque.errors import SettingError
from calque.tasks.answering import Answering, SpanAnswers
from calque.tasks.bootstrap import over_groups
from calque.tasks.datasets import Dataset
from calque.tasks.zeroshot import Experiment
from command import fails, works
from planted import Planted, jobs, questions


def written(path, rows):
    """A file of passages, each with `(question, answer, answer_start)`."""
    paragraphs = [
        {"context": passage,
         "qas": [{"question": q, "answers": [{"text": text, "answer_start": start}]} for q, text, start in asked]}
        for passage, asked in rows
    ]  # fmt: skip
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def test_vectors_without_meaning_answer_by_chance():
    """Of ten words the same vectors: which one is meant cannot be told."""
    score = jobs(n=60, options={"epochs": 3, "learning_rate": 1e-2, "batch": 16})["qa"].evaluate(
        Planted(constant=True)
    )[1]
    assert score.metric == "em"
    assert score.value < 0.35


def test_questions_of_several_texts_stay_with_their_passages():
    parts = [questions(7, "en", seed) for seed in (0, 1)] + [questions(5, "fr", 2)]
    job, encoder = Answering(parts, [questions(3, "de")], seeds=(0,)), Planted()
    run = Experiment(job, encoder)
    numbers = np.array([16, 3, 8, 0, 3])
    given = run.text.take(numbers)
    flat = [(part.data, k) for part in parts for k in range(len(part.data))]
    expected = [data.passages[int(data.owner[k])].words for data, k in (flat[n] for n in numbers)]
    expected += [data.questions[k].words for data, k in (flat[n] for n in numbers)]
    vectors = [encoder.vector(word) for words in expected for word in words]
    np.testing.assert_allclose(given.rows.numpy(), np.array(vectors), atol=1e-6)
    assert given.lengths.tolist() == [len(words) for words in expected]
    assert run.text.lengths[numbers].tolist() == [11] * 5
    assert isinstance(run.answers, SpanAnswers)
    for n in numbers:
        data, k = flat[n]
        first, last = run.answers.ends(np.array([n]))[0].tolist()
        assert [first, last + 1] == data.spans[k].tolist()
        assert run.answers.span_scores(int(n), first, last) == (1.0, 1.0)
        assert run.answers.span_scores(int(n), first, first) == (pytest.approx(2 / 3), 0.0)


def test_questions_on_one_passage_are_resampled_together(tmp_path):
    """The interval is over passages: a passage that is drawn comes with all of its questions."""
    asked = [(f"{passage} time water", [("of", "time", 2)] * 6) for passage in "abcde"]
    test = Dataset("x", "en", read_questions(written(tmp_path / "x.json", asked), lang="en"))
    score = Answering([test], [test], hidden=4, seeds=(0,), options={"epochs": 1}).evaluate(Planted())[0]
    assert (score.n, score.texts) == (30, 5)
    sums, groups = np.arange(12.0).reshape(6, 2), ["b", "a", "b", "c", "a", "b"]
    expected = [sums[[0, 2, 5]].sum(axis=0), sums[[1, 4]].sum(axis=0), sums[3]]  # in the order in which they begin
    np.testing.assert_array_equal(over_groups(sums, groups), expected)
    assert over_groups(sums, ()) is sums


def reading(n, lang):
    """The answer is the word `time` wherever it stands, or the one behind it."""
    rng = np.random.default_rng([n, ord(lang[0])])
    rows = []
    for _ in range(n):
        words = list(rng.choice(["the", "cat", "in", "a"], size=9))
        at = int(rng.integers(8))
        words[at : at + 2] = ["time", "water"]
        which = int(rng.integers(2))
        text, asked = " ".join(words), ["of", "and"][which]
        rows.append((text, [(asked, ["time", "water"][which], len(" ".join([*words[: at + which], ""])))]))
    return rows


def test_misplaced_answers_teach_nothing_and_are_asked():
    named = questions(8, "en")
    spans = named.data.spans.copy()
    spans[3] = -1
    job = Answering([replace(named, data=replace(named.data, spans=spans))], [named], hidden=4, seeds=(0,))
    run = Experiment(job, Planted())
    head = job.head(24)
    losses = job.losses(head, run.text.take(np.arange(8)), run.answers)
    assert (losses == 0).tolist() == [k == 3 for k in range(8)]
    with torch.no_grad():
        assert job.counts(head.eval(), run.text.take(np.arange(8)), run.answers)["em"][:, 1].sum() == 8
    with pytest.raises(SettingError, match=r"en\.json: no answer is at its answer_start"):
        Answering([replace(named, data=replace(named.data, spans=np.full_like(spans, -1)))], [named])


def test_from_the_command_line(tmp_path, capsys, tiny_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "squad.en.json", reading(12, "en"))
    written(tmp_path / "xquad.de.json", reading(5, "de"))
    job = (
        "evaluate",
        tiny_folder,
        "qa",
        "--train",
        "squad.en.json",
        "--test",
        "xquad.de.json",
        "--seeds",
        2,
        "--epochs",
        1,
    )
    shown, _ = works(capsys, *job, "--option", "max_answer=4", "--json")
    scores = json.loads(shown.splitlines()[-1])["scores"]
    assert [(s["metric"], s["languages"], s["n"]) for s in scores] == [("f1", ["en", "de"], 5), ("em", ["en", "de"], 5)]
    assert scores[0]["settings"]["max_answer"] == 4
    assert len(scores[1]["runs"]) == 2
    assert "--layers does not apply to qa; it is for retrieval" in fails(capsys, *job, "--layers", 3)
    assert "qa needs frozen vectors: leave out tune=True (--tune)" in fails(capsys, *job, "--tune")
    (tmp_path / "bad.de.json").write_text("{", encoding="utf-8")
    assert "bad.de.json line 1: not JSON" in fails(capsys, *job[:6], "bad.de.json")
