"""Code-switched training text: what is learnt from, what it is judged by, and what it is good for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calque.errors import SettingError
from calque.tasks.answering import Answering
from calque.tasks.classification import Classification
from calque.tasks.datasets import Dataset, places_of_copies
from calque.tasks.experiment import Experiment
from calque.tasks.switching import settings_of, switched
from calque.tasks.tagging import Tagging
from calque.text import Sentences
from calque.training.sources import CopiedSource, FrozenSource, vectors_of
from calque.vectors import Embeddings
from calque.wordalign import CodeSwitch, Translations
from planted import QUICK, Planted, choices, in_context, jobs, labelled, questions, spans, tagged, trees

GERMAN = Translations({f"e{k}": (f"d{k}",) for k in range(40)})
HALF = CodeSwitch({"de": GERMAN}, texts=0.7, words=0.5)
MAKE = {
    "ner": lambda n: tagged(n, "en"), "slots": lambda n: tagged(n, "en", intents=True), "pos": lambda n: tagged(n, "en"),
    "sentiment": lambda n: labelled(n, "en"), "nli": lambda n: labelled(n, "en", pairs=True), "parsing": lambda n: trees(n, "en"),
    "probing": lambda n: spans(n, "en"), "qa": lambda n: questions(n, "en"),
    "wic": lambda n: in_context(n, "en"), "choice": lambda n: choices(n, "en"),
}  # fmt: skip


def words_of(data):
    columns = getattr(data, "texts", None) or (data.sentences,)
    return [[list(sentence.words) for sentence in column] for column in columns]


@pytest.mark.parametrize("name", list(MAKE))
def test_a_copy_has_the_answers_of_its_original(name):
    """The number of a word says what it means: where its letter has become German, everything else is what it was."""
    each = switched(MAKE[name](30), HALF, 3)
    copies, job = each.switched, jobs()[name]
    assert copies.rows.shape == (3, 30)
    assert sorted(copies.rows[copies.rows >= 0]) == list(range(len(copies.data)))
    assert len(copies.data) < 90  # not all are drawn
    original, changed = (job.answers(Dataset("x", "en", data)) for data in (each.data, copies.data))
    for number in range(3):
        for text, row in enumerate(copies.rows[number]):
            if row < 0:
                continue
            for old, new in zip(words_of(each.data), words_of(copies.data), strict=True):
                assert [word[1:] for word in new[row]] == [word[1:] for word in old[text]]
            assert any(word[0] == "d" for column in words_of(copies.data) for word in column[row])
            for answer in original.words:
                old, new = original.of_words(answer, np.array([text])), changed.of_words(answer, np.array([row]))
                assert old.tolist() == new.tolist()
            for answer in original.texts:
                assert original.texts[answer][text] == changed.texts[answer][row]
    counts = copies.record["counts"]
    letters = [word[0] for column in words_of(copies.data) for sentence in column for word in sentence]
    assert (counts["texts_changed"], counts["words_changed"]) == (len(copies.data), letters.count("d"))


def test_an_update_takes_one_copy_of_each_text():
    """Texts of one word, whose vector says text and copy: places of the originals, then the changed ones of both texts."""
    first = switched(tagged(6, "en"), CodeSwitch({"de": GERMAN}, 1.0, 0.6), 2)
    second = switched(tagged(4, "en", 3), HALF, 2)
    places = places_of_copies([first, second])
    assert places.shape == (2, 10)
    for number in range(2):
        for text in range(10):
            each, own, behind = (first, text, 10) if text < 6 else (second, text - 6, 10 + len(first.switched.data))
            row = each.switched.rows[number, own]
            assert places[number, text] == (text if row < 0 else behind + row)
    n = places.max() + 1
    whole = FrozenSource(Embeddings(np.arange(n, dtype=np.float32)[:, None], np.arange(n + 1)))
    source = CopiedSource(whole, np.array([8, 2, 5, 1]), places, seed=1)
    seen = {text: set() for text in (8, 2, 5, 1)}
    for _ in range(20):
        given = source.take(np.array([0, 1, 3]))
        assert given.numbers.tolist() == [8, 2, 1]
        for text, row in zip(given.numbers.tolist(), given.rows[:, 0].tolist(), strict=True):
            seen[text].add(int(row))
    assert seen == {text: set(places[:, text].tolist()) if text != 5 else set() for text in seen}


@pytest.mark.parametrize("tune", [False, True])
def test_what_is_held_out_stays_as_it_is(tune, tiny_encoder):
    rng = np.random.default_rng(0)
    words = ["the", "cat", "sees", "a", "house"]
    text = [[words[k] for k in rng.integers(0, 5, 3)] for _ in range(20)]
    data = tagged(20, "en")
    labels = type(data.data.tags).of(["A", "B", "A"] * 20)
    data = Dataset("en", "en", type(data.data)(Sentences.of(text, "en"), labels))
    backwards = Translations({word: (word[::-1],) for word in words[1:]})
    each = switched(data, CodeSwitch({"xx": backwards}, 1.0, 1.0))
    job = Tagging("pos", [each], [data], tune=tune, seeds=(0,))
    experiment = Experiment(job, tiny_encoder)
    (held_out,) = experiment.held_out
    assert held_out.tolist() == [9, 19]
    of_dev, learnt = experiment.source_of(held_out, tiny_encoder), experiment.trained(vectors(experiment), 0)
    original, changed = (tiny_encoder.encode(part.sentences) for part in (data.data, each.switched.data))
    numbers = np.arange(len(experiment.kept))
    for name, given in (("dev", of_dev.take(np.arange(2))), ("train", learnt.take(numbers))):
        start = 0
        for number in given.numbers.tolist():
            row = -1 if name == "dev" else each.switched.rows[0, number]
            right = original[number] if row < 0 else changed[row]
            np.testing.assert_allclose(given.rows[start : start + 3].detach(), right, atol=1e-4)
            start += 3
    assert set(given.numbers.tolist()) == set(range(20)) - {9, 19}


def vectors(experiment):
    """All texts of an experiment with their vectors as the encoder gives them now."""
    if not experiment.task.tune:
        return experiment.text
    return FrozenSource(vectors_of(experiment.encoder, experiment.text), torch.device("cpu"))


@pytest.mark.parametrize("name", ["ner", "sentiment"])
def test_words_apart_are_learnt_from_code_switched_text(name):
    """Vectors of German words have nothing to do with the English ones, and are learnt all the same."""
    small = {"seeds": (0,), "bootstrap": 20, "options": QUICK}
    job = jobs()[name]
    train, tests = [switched(job.train[0], HALF, 2)], job.tests[:1]
    again = {
        "ner": lambda: Tagging("ner", train, tests, hidden=16, **small),
        "sentiment": lambda: Classification("sentiment", train, tests, hidden=24, **small),
    }[name]()
    plain, better = (each.evaluate(Planted(apart=True))[0] for each in (job, again))
    assert better.languages == ("en", "de")
    assert better.value > plain.value + 0.1, (plain, better)
    assert "code_switch" not in plain.settings
    assert better.settings["code_switch"] == "de: 0.7 of texts, 0.5 of words, copies 2"
    record = better.settings["code_switched"]["en.tsv"]
    assert record["translations"] == {"de": 40}
    assert record["counts"]["words_without_translation"] == 0
    assert settings_of(train) == {name: better.settings[name] for name in ("code_switch", "code_switched")}


@pytest.mark.parametrize("tune", [False, True])
def test_questions_and_their_passages_are_learnt_from_switched(tune, tiny_encoder):
    """A passage that several questions are about is switched for each of them anew."""
    each = switched(questions(20, "en"), HALF)
    assert len(each.data.passages) == 10
    assert len(each.switched.data.passages) == len(each.switched.data)
    job = Answering(
        [each], [questions(4, "de", 1)], tune=tune, seeds=(0,), bootstrap=10, options={"epochs": 1}, hidden=8
    )
    score = job.evaluate(tiny_encoder if tune else Planted(apart=True))[0]
    assert score.settings["code_switch"].startswith("de: 0.7 of texts")
    assert 0 <= score.value <= 1


def test_text_that_cannot_be_switched_says_so():
    with pytest.raises(SettingError, match=r"en\.tsv: no word was replaced by one in de: are the dictionaries from en"):
        switched(tagged(5, "en"), CodeSwitch({"de": Translations({"the": ("der",)})}))
    with pytest.raises(SettingError, match="0 code-switched copies"):
        switched(tagged(5, "en"), HALF, 0)
    with pytest.raises(SettingError, match="str cannot be code-switched"):
        switched(Dataset("x", "en", "text"), HALF)
