"""Tests of the bidirectional language model: loss and perplexity against naive sums, training, and
saving.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from calque.encoders import load_encoder
from calque.errors import InputError, SettingError
from calque.nn.ragged import Ragged
from calque.senses import bidirectional
from calque.senses.bidirectional import BiLanguageModel, WordModel, WordPrediction
from calque.senses.elmo import BEGIN, END
from calque.senses.perplexity import word_perplexity
from calque.senses.pretrain import hold_out
from calque.senses.text import FIRST_WORD, UNKNOWN, Vocabulary, WordText
from calque.text import Sentence, Sentences

pytest.importorskip("h5py")
EN = Sentences.of(
    [["the", "cat", "sees", "the", "dog"], [], ["the", "dog", "sees"], ["a", "cat"]] * 3
    + [["rare"]],
    "en",
)
DE = Sentences.of([["die", "Katze", "和"], ["die", "Katze"]], "de")
TINY = {"dim": 6, "hidden": 8, "filters": [(1, 4), (2, 4)], "dropout": 0.0, "min_count": 1}


def small(**options) -> BiLanguageModel:
    return BiLanguageModel(**TINY | {"batch": 4, "updates": 6} | options)


# -- words -----------------------------------------------------------------------------------------
def test_word_ids_are_ordered_by_frequency():
    text = WordText.of({"en": EN, "de": DE}, size=8, min_count=2)
    vocabulary = text.vocabulary
    assert vocabulary.words == ("the", "cat", "sees", "dog", "a")
    assert vocabulary.counts.tolist() == [12, 12, 6, 9, 6, 6, 6, 3]
    assert len(vocabulary) == 8
    assert text.word_types == ["the", "cat", "sees", "dog", "a", "die", "Katze", "rare", "和"]
    assert vocabulary.numbers(["dog", "die", "the"]).tolist() == [6, UNKNOWN, FIRST_WORD]
    en, de = text.blocks["en"], text.blocks["de"]
    assert en.ids[en.offsets[0] : en.offsets[3]].tolist() == [
        BEGIN,
        3,
        4,
        5,
        3,
        6,
        END,
        BEGIN,
        3,
        6,
        5,
        END,
        BEGIN,
        7,
        4,
        END,
    ]
    assert de.ids.tolist() == [BEGIN, 8, 9, 11, END, BEGIN, 8, 9, END]
    assert vocabulary.unigram().sum() == pytest.approx(1)
    held = WordText.seen_by(
        vocabulary, [["new", "the", "new"], Sentence(()), Sentence(("die", "dog"))]
    )
    assert held.word_types[5:] == ["new", "die"]
    assert held.blocks[""].ids.tolist() == [BEGIN, 8, 3, 8, END, BEGIN, 9, 6, END]
    assert held.blocks[""].offsets.tolist() == [0, 5, 9]
    # Oversampling a small language moves its words up in the vocabulary.
    assert WordText.of({"en": EN, "de": DE}, size=20, alpha=0).vocabulary.words.index("die") < 2


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 100])
def test_long_sentences_are_split_so_each_word_is_predicted_once(length):
    words = [f"w{k}" for k in range(6)]
    text = WordText.of({"en": Sentences.of([words, words[:2]], "en")}, size=100, length=length)
    blocks = text.blocks["en"]
    whole = (
        [BEGIN, *text.vocabulary.numbers(words).tolist(), END],
        [BEGIN, *text.vocabulary.numbers(words[:2]).tolist(), END],
    )
    expected = Counter(pair for ids in whole for pair in pairwise(ids))
    found: Counter = Counter()
    for a, b in pairwise(blocks.offsets):
        assert 2 <= b - a <= length + 1
        found.update(
            zip(blocks.ids[a : b - 1].tolist(), blocks.ids[a + 1 : b].tolist(), strict=True)
        )
    assert found == expected


def test_a_vocabulary_can_be_saved_and_opened(tmp_path):
    vocabulary = WordText.of({"en": EN}, size=50).vocabulary
    vocabulary.save(tmp_path)
    again = Vocabulary.open(tmp_path)
    assert again.words == vocabulary.words
    assert again.fingerprint == vocabulary.fingerprint
    (tmp_path / "vocabulary.json").write_text(json.dumps({"words": ["a"], "counts": [1]}))
    with pytest.raises(InputError, match="1 counts for 1 words"):
        Vocabulary.open(tmp_path)
    with pytest.raises(SettingError, match="no word occurs at least"):
        WordText.of({"en": EN}, size=50, min_count=100)


# -- training --------------------------------------------------------------------------------------
def literal_model_loss(model: WordModel, sentences) -> torch.Tensor:
    """Return the mean of −log p over all words and sentence ends in both directions, with a full
    softmax.
    """
    total, n = torch.zeros(()), 0
    for words in sentences:
        numbers = [BEGIN, *model.vocabulary.numbers(words).tolist(), END]
        rows = torch.from_numpy(model.rows(words))
        x = model.network.words(rows[[0, *range(3, 3 + len(words)), 1]])
        left, right = model.network.read(x, Ragged([len(numbers)]))
        for side, states in ((0, left[-1][:-1]), (1, right[-1][1:])):
            table, answers = model.head.table(side), numbers[1:] if side == 0 else numbers[:-1]
            shares = (states @ table.weight.t() + table.bias).log_softmax(1)
            total = total - shares[torch.arange(len(answers)), torch.tensor(answers)].sum() / 2
        n += len(numbers) - 1
    return total / n


def test_a_sense_is_selected_by_the_states_after_its_word_was_read():
    """A word is predicted from the state before it, and its sense is selected by the states of the
    word itself.
    """
    model = small(updates=1, vocabulary=8).train({"en": EN}).model.eval()
    words, other = ["the", "cat", "sees", "dog"], ["the", "dog", "sees", "dog"]
    rows = model.rows(list(model.vocabulary.words))

    def read(text):
        """Return the contexts of a sentence, and the last layer's states in both directions."""
        ids = np.array([BEGIN, *model.vocabulary.numbers(text).tolist(), END])
        left, right = model.network.read(
            model.network.words(torch.from_numpy(rows[ids])), Ragged([len(ids)])
        )
        return model.contexts(rows, ids, np.array([len(ids)])), left[-1], right[-1]

    found, left, right = read(words)
    for states, expected in (
        (found.states[0], left[:-1]),
        (found.states[1], right[1:]),
        (found.own[0][0], left[1:]),
        (found.own[0][1], right[1:]),
        (found.own[1][0], left[:-1]),
        (found.own[1][1], right[:-1]),
    ):
        torch.testing.assert_close(
            states, expected.detach() if not states.requires_grad else expected
        )
    # The second word differs: it is predicted by the forward state of the first word.
    changed, _, _ = read(other)
    torch.testing.assert_close(changed.states[0][1], found.states[0][1])
    assert float((changed.own[0][0][1] - found.own[0][0][1]).abs().max()) > 1e-4
    torch.testing.assert_close(changed.states[1][2], found.states[1][2])
    assert float((changed.own[1][1][2] - found.own[1][1][2]).abs().max()) > 1e-4


@pytest.mark.parametrize("tables", [1, 2])
def test_loss_and_gradient_equal_naive_sums(tables, monkeypatch):
    method = small(batch=6, updates=1, tables=tables, vocabulary=5)
    backward, kept = WordPrediction.backward, {}

    def spy(self, update):
        kept["model"] = copy.deepcopy(self.module)
        kept["sentences"] = [
            [
                word_types[i - FIRST_WORD]
                for i in blocks.ids[blocks.offsets[k] + 1 : blocks.offsets[k + 1] - 1]
            ]
            for lang, numbers in update
            for blocks in [self.mixture.languages[lang]]
            for k in numbers
        ]
        kept["terms"] = backward(self, update)
        kept["gradients"] = [p.grad.clone() for p in self.module.parameters()]
        return kept["terms"]

    word_types = WordText.of({"en": EN, "de": DE}, size=8, alpha=0.5).word_types
    monkeypatch.setattr(WordPrediction, "backward", spy)
    method.train({"en": EN, "de": DE})
    model = kept["model"]
    assert sum(len(words) == 0 for words in kept["sentences"]) == 0
    loss = literal_model_loss(model, kept["sentences"])
    assert kept["terms"]["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    expected = torch.autograd.grad(bidirectional.LOSS_SCALE * loss, list(model.parameters()))
    largest = max(float(g.abs().max()) for g in expected)
    for (name, _), ours, theirs in zip(
        model.named_parameters(), kept["gradients"], expected, strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5 * largest, msg=name)


def test_a_stopped_run_resumes_with_bitwise_equal_results(tmp_path, monkeypatch):
    """Check dropout and Adam; test_training.py checks senses and Adagrad."""
    options, texts = {"updates": 14, "dropout": 0.2, "negatives": 3}, {"en": EN, "de": DE}
    method = small(**options)
    whole = method.train(texts)
    backward, calls = WordPrediction.backward, []

    def stop(self, update):
        calls.append(update)
        if len(calls) == 8:
            raise InterruptedError
        return backward(self, update)

    monkeypatch.setattr(WordPrediction, "backward", stop)
    with pytest.raises(InterruptedError):
        method.train(texts, folder=tmp_path, checkpoint_every=3)
    with pytest.raises(SettingError, match="other settings or data: negatives: 3 → 4"):
        small(**options | {"negatives": 4}).train(texts, folder=tmp_path)
    resumed = method.train(texts, folder=tmp_path, checkpoint_every=3)
    assert resumed.history == whole.history
    assert resumed.encoder.fingerprint == whole.encoder.fingerprint
    other = small(**options | {"seed": 1}).train(texts)
    assert other.encoder.fingerprint != whole.encoder.fingerprint


@pytest.mark.parametrize(("negatives", "updates"), [(8192, 90), (16, 140)])
def test_the_model_learns_which_words_follow_each_other(tmp_path, negatives, updates):
    """The optimal perplexity is 2: each of 40 words has two possible successors and two possible
    predecessors.
    """
    rng = np.random.default_rng(0)
    words = [f"{chr(97 + k % 8)}{chr(97 + k // 8)}" for k in range(40)]

    def text(n):
        starts, steps = rng.integers(0, 40, n), rng.integers(1, 3, (n, 9))
        return Sentences.of(
            [
                [words[(s + step) % 40] for step in np.cumsum(row)]
                for s, row in zip(starts, steps, strict=True)
            ]
        )

    method = BiLanguageModel(
        dim=16,
        hidden=32,
        filters=[(1, 16), (2, 32)],
        dropout=0.0,
        updates=updates,
        batch=24,
        negatives=negatives,
        learning_rate=0.02,
        optimiser="adam",
    )
    trained = method.train({"": text(400)})
    measured, unigram = word_perplexity(trained.model, text(60))
    about = measured.settings
    assert unigram.value > 30
    assert about["forward"] < 6
    assert about["backward"] < 6
    assert measured.value == pytest.approx((about["forward"] * about["backward"]) ** 0.5, rel=1e-3)
    assert (measured.n, about["unknown"]) == (60 * 10, 0)
    trained.model.save(tmp_path)
    again = WordModel.open(tmp_path)
    few = [["aa", "ba"]]
    assert np.array_equal(
        again.negative_log_likelihood(few), trained.model.negative_log_likelihood(few)
    )
    assert load_encoder(tmp_path, device="cpu").fingerprint == trained.encoder.fingerprint
    (tmp_path / "softmax.safetensors").write_bytes(b"no")
    with pytest.raises(InputError, match="not contain the softmax weights of this model"):
        WordModel.open(tmp_path)


def test_perplexity_equals_a_naive_sum():
    model = small(vocabulary=5).train({"en": EN, "de": DE}).model
    held = [["the", "Hund", "和"], [], ["cat"], ["the"] * 40]
    loss = literal_model_loss(model, [words for words in held if words])
    found, unigram = word_perplexity(model, Sentences.of(held, "en"))
    assert found.value == pytest.approx(float(loss.detach().exp()), rel=1e-5)
    assert (found.n, found.settings["unknown"]) == (3 + 1 + 40 + 3, 2)
    frequency = np.log(model.vocabulary.unigram())
    numbers = [[*model.vocabulary.numbers(words), END] for words in held if words]
    assert unigram.value == pytest.approx(np.exp(-frequency[np.concatenate(numbers)].mean()))
    each = model.negative_log_likelihood(held, budget=10)
    assert each.shape == (3, 5)  # the empty sentence is skipped
    for row, words in zip(each, [words for words in held if words], strict=True):
        np.testing.assert_allclose(row, model.negative_log_likelihood([words])[0], rtol=1e-5)
    with pytest.raises(SettingError, match="no words"):
        model.negative_log_likelihood([[]])


@pytest.mark.parametrize(
    "bad",
    [
        {"updates": 0},
        {"seed": -1},
        {"learning_rate": np.nan},
        {"dropout": 1.0},
        {"precision": "half"},
        {"optimiser": "sgd"},
        {"vocabulary": 0},
        {"tables": 3},
        {"negatives": 0},
        {"dim": 0},
        {"filters": [(99, 3)]},
    ],
)
def test_invalid_settings_are_rejected(bad):
    with pytest.raises(SettingError):
        small(**bad)


def test_held_out_sentences_are_evenly_spaced_and_not_in_the_training_text():
    text = Sentences.of(
        [["the", "same", "again"]] * 2 + [[f"w{k}", "cat"] for k in range(2, 40)], "en"
    )
    rest, held = hold_out(text, 5)
    # Sentence 0 also occurs as sentence 1.
    assert [s.words for s in held] == [text[k].words for k in (8, 16, 24, 32)]
    assert len(rest) == 35
    with pytest.raises(
        SettingError, match="at most half of the 40 sentences in en can be held out, got 21"
    ):
        hold_out(text, 21)
    with pytest.raises(SettingError, match="also occurs in the training text"):
        hold_out(text, 1)
