"""Compare the perplexity of masked words with a loop over sentences and words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from calque.encoders.subwords import Subwords
from calque.errors import SettingError
from calque.senses.masked import MaskedLanguageModel, train_tokenizer
from calque.senses.perplexity import choose_words, masked_perplexity
from calque.text import Sentences

WORDS = ["the", "cat", "sees", "houses", "of", "time", "unseen", "waters"]


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(0)
    text = Sentences.of([list(rng.choice(WORDS, rng.integers(0, 12))) for _ in range(40)], "en")
    tokenizer = train_tokenizer({"en": text}, size=60)
    method = MaskedLanguageModel(
        layers=1, dim=16, heads=2, positions=40, length=30, batch=8, updates=3
    )
    trained = method.train({"en": text}, tokenizer)
    return trained.model, tokenizer, text


def test_perplexity_equals_that_of_a_loop(trained):
    model, tokenizer, text = trained
    subwords = Subwords(tokenizer, max_length=40, vocabulary=len(tokenizer))
    score = masked_perplexity(model, subwords, text, mask_id=tokenizer.mask_token_id, seed=5)
    chosen = set(choose_words(text.lengths(), 0.15, 5).tolist())
    total, n, start = 0.0, 0, 0
    for sentence in text:
        words = [w for w in range(len(sentence)) if start + w in chosen]
        start += len(sentence)
        if not words:
            continue
        encoded = tokenizer(list(sentence.words), is_split_into_words=True, return_tensors="pt")
        places = [k for k, w in enumerate(encoded.word_ids()) if w in words]
        ids = encoded.input_ids.clone()
        ids[0, places] = tokenizer.mask_token_id
        with torch.no_grad():
            logp = model(ids).logits[0].log_softmax(-1)
        total -= sum(float(logp[k, encoded.input_ids[0, k]]) for k in places)
        n += len(words)
    assert score.n == n
    assert score.value == pytest.approx(math.exp(total / n), rel=1e-4)
    assert score.low < score.value < score.high


def test_words_beyond_the_maximum_length_are_counted_but_not_predicted(trained):
    model, tokenizer, _ = trained
    text = Sentences.of([["the", "cat"] * 10], "en")
    subwords = Subwords(tokenizer, max_length=8, vocabulary=len(tokenizer))
    score = masked_perplexity(model, subwords, text, mask_id=tokenizer.mask_token_id, share=1.0)
    assert score.n + score.settings["left_out"] == 20
    assert score.settings["left_out"] >= 14
    with pytest.raises(SettingError, match="share"):
        masked_perplexity(model, subwords, text, mask_id=4, share=0.0)
    for nothing in (
        Sentences.of([], "en"),
        Sentences.of([[], []], "en"),
        Sentences.of([["\x00"]], "en"),
    ):
        with pytest.raises(
            SettingError, match="the text has no word that the model can read, so there is nothing"
        ):
            masked_perplexity(model, subwords, nothing, mask_id=4)
