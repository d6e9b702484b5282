"""Tests of question answering: scores compared with the official script, and a trained classifier
head.
"""

import json
import re
import string
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from calque.corpora.squad import read_questions
from calque.errors import SettingError
from calque.tasks.answering import Answering, SpanAnswers, answer_scores
from calque.tasks.bootstrap import over_groups
from calque.tasks.datasets import Dataset
from calque.tasks.zeroshot import Experiment
from command import fails, works
from planted import Planted, jobs, questions


def written(path, rows):
    """Write a file of passages; each passage has a list of `(question, answers, answer_start)`."""
    paragraphs = [
        {
            "context": passage,
            "qas": [
                {"question": q, "answers": [{"text": text, "answer_start": start}]}
                for q, text, start in asked
            ],
        }
        for passage, asked in rows
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def test_constant_vectors_score_at_chance_level():
    score = jobs(n=60, options={"epochs": 3, "learning_rate": 1e-2, "batch": 16})["qa"].evaluate(
        Planted(constant=True)
    )[1]
    assert score.metric == "em"
    assert score.value < 0.35


def test_questions_from_several_texts_keep_their_passages():
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


def test_questions_about_the_same_passage_are_resampled_together(tmp_path):
    asked = [(f"{passage} time water", [("of", "time", 2)] * 6) for passage in "abcde"]
    test = Dataset("x", "en", read_questions(written(tmp_path / "x.json", asked), lang="en"))
    score = Answering([test], [test], hidden=4, seeds=(0,), options={"epochs": 1}).evaluate(
        Planted()
    )[0]
    assert (score.n, score.texts) == (30, 5)
    sums, groups = np.arange(12.0).reshape(6, 2), ["b", "a", "b", "c", "a", "b"]
    expected = [
        sums[[0, 2, 5]].sum(axis=0),
        sums[[1, 4]].sum(axis=0),
        sums[3],
    ]  # groups in order of first occurrence
    np.testing.assert_array_equal(over_groups(sums, groups), expected)
    assert over_groups(sums, ()) is sums


def reading(n, lang):
    """Return passages; the answer to the question `of` is `time`, and the answer to `and` is the
    word after `time`.
    """
    rng = np.random.default_rng([n, ord(lang[0])])
    rows = []
    for _ in range(n):
        words = list(rng.choice(["the", "cat", "in", "a"], size=9))
        at = int(rng.integers(8))
        words[at : at + 2] = ["time", "water"]
        which = int(rng.integers(2))
        text, asked = " ".join(words), ["of", "and"][which]
        rows.append(
            (text, [(asked, ["time", "water"][which], len(" ".join([*words[: at + which], ""])))])
        )
    return rows


def test_misplaced_answers_count_only_in_tests():
    named = questions(8, "en")
    spans = named.data.spans.copy()
    spans[3] = -1
    job = Answering(
        [replace(named, data=replace(named.data, spans=spans))], [named], hidden=4, seeds=(0,)
    )
    run = Experiment(job, Planted())
    head = job.head(24)
    losses = job.losses(head, run.text.take(np.arange(8)), run.answers)
    assert (losses == 0).tolist() == [k == 3 for k in range(8)]
    with torch.no_grad():
        assert (
            job.counts(head.eval(), run.text.take(np.arange(8)), run.answers)["em"][:, 1].sum() == 8
        )
    with pytest.raises(
        SettingError, match=r"en\.json: at least one question must have its first answer at"
    ):
        Answering(
            [replace(named, data=replace(named.data, spans=np.full_like(spans, -1)))], [named]
        )


def test_the_command_scores_question_answering_and_rejects_invalid_options(
    tmp_path, capsys, tiny_folder, monkeypatch
):
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
    assert [(s["metric"], s["languages"], s["n"]) for s in scores] == [
        ("f1", ["en", "de"], 5),
        ("em", ["en", "de"], 5),
    ]
    assert scores[0]["settings"]["max_answer"] == 4
    assert len(scores[1]["runs"]) == 2
    assert "set a single layer with layer (--layer)" in fails(capsys, *job, "--layers", 3)
    assert "qa requires frozen vectors, got tune=True; remove --tune" in fails(
        capsys, *job, "--tune"
    )
    (tmp_path / "bad.de.json").write_text("{", encoding="utf-8")
    assert "bad.de.json line 1: not JSON" in fails(capsys, *job[:6], "bad.de.json")


def by_squad(answer):
    """Normalise like evaluate-v1.1.py: lower-case, remove ASCII punctuation and English articles,
    collapse spaces.
    """
    lowered = answer.lower()
    bare = "".join(letter for letter in lowered if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def official(answer, right, normalize):
    """Compute metric_max_over_ground_truths for f1_score and exact_match_score."""
    found = []
    for each in right:
        a, b = normalize(answer).split(), normalize(each).split()
        same = sum((Counter(a) & Counter(b)).values())
        precision, recall = (same / len(a), same / len(b)) if same else (0, 0)
        f1 = 2 * precision * recall / (precision + recall) if same else 0
        found.append((f1, normalize(answer) == normalize(each)))
    return max(f1 for f1, _ in found), max(float(exact) for _, exact in found)


PIECES = [
    "The",
    "a ",
    "theme",
    " AN ",
    "Rome",
    "Rom",
    "e",
    "«",
    "»",
    "U.S.",
    "'s",
    "-",
    "\u00a0",
    "  ",
    "İ",
    "ß",
    "ال",
    "البيت",
    "die ",
    "der",
    "Das ",
    "北京",
    "大",
    "，",
    "A1",
    " của ",
    "$5",
    "\n",
    "la ",
    "Los",
    "हिंदी",
    "।",
    "_",
    "",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@given(answer=TEXTS, right=st.lists(TEXTS, min_size=1, max_size=3))
@example(
    answer="the", right=["a"]
)  # both are empty after normalisation, so they match exactly without a common word
@example(answer="in the in Rome", right=["in Rome", "Rome in in"])
@example(answer="theme a", right=["THEME"])
@settings(deadline=None)
def test_scores_equal_those_of_the_official_script(answer, right):
    assert answer_scores(answer, right) == pytest.approx(official(answer, right, by_squad))
