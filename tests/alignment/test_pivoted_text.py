"""Text of two languages neither of which the others move towards, beside text that has it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from calque.alignment.aligned import AlignedText
from calque.alignment.contrastive import Contrastive
from calque.alignment.finetune import FineTune
from calque.alignment.update import Alignment, Reference
from calque.distributed import Processes
from calque.pairs import WordPairs
from calque.text import ParallelCorpus

WORDS = ["the", "cat", "sees", "a", "house", "of", "time", "and", "water", "in"]


@pytest.fixture
def texts():
    """German spells words backwards, French sentences: en-de, fr-en and de-fr of the same sentences."""
    rng = np.random.default_rng(0)
    english = [[WORDS[k] for k in rng.permutation(10)[:4]] for _ in range(5)]
    de = ParallelCorpus.of(english, [[word[::-1] for word in words] for words in english], ("en", "de"))
    fr = ParallelCorpus.of([words[::-1] for words in english], english, ("fr", "en"))
    links = [WordPairs.of([[(k, k) for k in range(4)]] * 5), WordPairs.of([[(3 - k, k) for k in range(4)]] * 5)]
    german, french = ([list(each.words) for each in side] for side in (de.target, fr.source))
    between = ParallelCorpus.of(german, french, ("de", "fr"))
    return [de, fr, between], [*links, WordPairs.of([[(k, 3 - k) for k in range(4)]] * 5)]


def update(tuner, encoder, corpora, pairs, chosen=np.array([0, 2, 3])):
    """Terms of the loss and gradients of an update, for an encoder that has moved a little."""
    text, processes = AlignedText(corpora, pairs, encoder, towards=tuner.towards), Processes()
    tuned = copy.copy(encoder)
    tuned.model = copy.deepcopy(encoder.model)
    with torch.no_grad():
        for weights in tuned.model.parameters():
            weights.add_(0.01 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(weights.numel())))
    frozen = None
    if tuner.needs_reference:
        frozen = Reference(encoder, text, [3], tuner.budget, processes)
        frozen.keep(tuner.reference, tuner.precision)
    objective = Alignment(tuned, text, [3], processes, frozen, loss=tuner.loss, over_all=tuner.terms_over_all,
                          accumulate=tuner.accumulate)  # fmt: skip
    terms = objective.backward([chosen] * len(corpora))
    return terms, {name: p.grad.clone() for name, p in tuned.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("make", [FineTune, Contrastive])
@pytest.mark.parametrize("how", [{}, {"reference": "recomputed"}, {"accumulate": 2}])
def test_such_text_adds_the_loss_of_its_pairs_and_keeps_nothing_in_place(tiny_encoder, texts, make, how):
    corpora, pairs = texts
    two, gradients_of_two = update(make(towards="en", weight=1.0, **how), tiny_encoder, corpora[:2], pairs[:2])
    # Alone it is text that moves towards French, without the terms that would keep French.
    alone = {**how, "weight": 0.0, **({"keep": 0.0} if make is Contrastive else {})}
    third, gradients_of_third = update(make(towards="fr", **alone), tiny_encoder, corpora[2:], pairs[2:])
    terms, gradients = update(make(towards="en", weight=1.0, **how), tiny_encoder, corpora, pairs)
    main = "align" if make is FineTune else "contrast"
    assert third[main] > 0
    assert terms == pytest.approx({**two, main: two[main] + third[main], "loss": two["loss"] + third["loss"]}, rel=1e-4)
    for name, gradient in gradients.items():
        expected = gradients_of_two[name] + gradients_of_third[name]
        torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-5 + 1e-3 * float(expected.abs().max()))


def test_where_the_others_are_pulled_to_frozen_words_such_text_has_live_ones(tiny_encoder, texts):
    corpora, pairs = texts
    two, _ = update(FineTune(towards="en", target="frozen"), tiny_encoder, corpora[:2], pairs[:2])
    third, _ = update(FineTune(towards="fr", weight=0.0), tiny_encoder, corpora[2:], pairs[2:])
    terms, _ = update(FineTune(towards="en", target="frozen"), tiny_encoder, corpora, pairs)
    assert terms["align"] == pytest.approx(two["align"] + third["align"], rel=1e-4)


def test_training_counts_it(tiny_encoder, texts):
    tuner = Contrastive(towards="en", batch=5, epochs=1)
    tuner.tune(tiny_encoder, *texts)
    assert tuner.counts.languages == ["de", "fr", "de-fr"]
    assert (tuner.counts.sentence_pairs, tuner.counts.links) == (15, 60)
