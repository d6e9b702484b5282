"""Multiple choice: what belongs to which question, what is learnt, and what two languages share."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from calque.corpora.choices import ChoiceText
from calque.errors import CalqueWarning, SettingError
from calque.tasks.choosing import Choosing
from calque.tasks.datasets import Dataset
from calque.tasks.experiment import Experiment
from calque.text import Sentences
from command import fails, works
from planted import Planted, choices


def test_answers_stay_with_their_passage():
    parts = [choices(5, "en", seed) for seed in (0, 1)]
    job, encoder = Choosing(parts, [choices(3, "de")], seeds=(0,)), Planted()
    run = Experiment(job, encoder)
    numbers = np.array([8, 2, 5])
    given = run.text.take(numbers)
    flat = [(part.data, k) for part in parts for k in range(len(part.data))]
    texts = [flat[n][0].texts[0][flat[n][1]] for _ in range(4) for n in numbers]
    texts += [flat[n][0].texts[1 + answer][flat[n][1]] for answer in range(4) for n in numbers]
    expected = [encoder.vector(word) for text in texts for word in text.words]
    np.testing.assert_allclose(given.rows.numpy(), np.array(expected), atol=1e-6)
    assert given.lengths.tolist() == [len(text.words) for text in texts]
    right = run.answers.of_texts("labels", given.numbers).tolist()
    assert right == [int(flat[n][0].right[flat[n][1]]) for n in numbers]


def test_esim_finds_the_answer_that_the_passage_has():
    options = {"epochs": 6, "learning_rate": 5e-3, "batch": 16}
    job = Choosing([choices(300, "en")], [choices(60, "de", 1)], hidden=16, dropout=0.0, seeds=(0,), options=options)
    score = job.evaluate(Planted())[0]
    assert (score.settings["head"], score.settings["choices"], score.languages) == ("esim", 4, ("en", "de"))
    assert score.value > 0.9


def test_an_encoder_learns_along(tiny_encoder):
    """The answer that repeats the passage's word, which only shows where both are read in one sequence."""
    rng = np.random.default_rng(0)
    words = ["time", "water", "cat", "house"]

    def text(n):
        right = rng.integers(2, size=n)
        pairs = np.array([rng.permutation(4)[:2] for _ in range(n)])
        passages = [[words[pair[at]]] for pair, at in zip(pairs, right, strict=True)]
        columns = [passages, *([[words[k]] for k in column] for column in pairs.T)]
        return Dataset(
            "x", "en", ChoiceText(tuple(Sentences.of(each, "en") for each in columns), right.astype(np.int32))
        )

    options = {"epochs": 12, "learning_rate": 3e-3, "batch": 16}
    job = Choosing([text(150), text(90)], [text(60)], tune=True, seeds=(0,), options=options, bootstrap=0)
    score = job.evaluate(tiny_encoder)[0]
    assert score.settings["head"] == "cls"
    assert score.value > 0.8


def test_questions_that_two_languages_share_are_said():
    english, german = choices(6, "en"), choices(6, "de")
    keys = tuple(f"link {k}" for k in range(6))
    named = [replace(each, data=replace(each.data, keys=keys)) for each in (english, german)]
    with pytest.warns(CalqueWarning, match=r"de\.jsonl: 6 of 6 questions are in en\.jsonl, too, in whatever language"):
        Choosing(named[:1], named[1:])
    others = replace(german, data=replace(german.data, keys=tuple(f"other {k}" for k in range(6))))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Choosing(named[:1], [others])
        Choosing([english], [german])


def test_other_numbers_of_answers_are_told():
    fewer = choices(4, "de")
    fewer = replace(fewer, data=ChoiceText(fewer.data.texts[:4], np.zeros(4, dtype=np.int32)))
    with pytest.raises(SettingError, match=r"de\.jsonl: 3 answers to choose from, en\.jsonl has 4"):
        Choosing([choices(4, "en")], [fewer])


def test_from_the_command_line(tmp_path, capsys, tiny_folder, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    for lang in ("en", "de"):
        row = {"flores_passage": "the cat in the house", "question": "in", "correct_answer_num": "1", "mc_answer1": "cat",
               "mc_answer2": "water", "mc_answer3": "time", "mc_answer4": "e", "link": lang, "question_number": 1}  # fmt: skip
        (tmp_path / f"b.{lang}.jsonl").write_text(8 * (json.dumps(row) + "\n"), encoding="utf-8")
    job = (
        "evaluate",
        tiny_folder,
        "choice",
        "--train",
        "b.en.jsonl",
        "--test",
        "b.de.jsonl",
        "--seeds",
        1,
        "--epochs",
        1,
    )
    score = json.loads(works(capsys, *job, "--json", "-q")[0].splitlines()[-1])
    assert (score["task"], score["metric"], score["n"], score["settings"]["head"]) == ("choice", "accuracy", 8, "esim")
    assert "--column does not apply to choice" in fails(capsys, *job, "--column", 3)
