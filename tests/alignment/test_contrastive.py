"""Compare contrastive alignment with naive implementations of its formulas."""

import copy
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from calque.alignment.aligned import AlignedText
from calque.alignment.contrastive import (
    Contrastive,
    info_nce,
    number_word_pairs,
    similarity_divergence,
)
from calque.alignment.data import training_data
from calque.alignment.update import Alignment
from calque.distributed import Processes
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from encoder_copies import moved
from linked_text import make_text
from tuner_cases import Linked

N = 40  # number of sentence pairs
CHOSEN = [np.array([3, 0, 7, 8])]


@pytest.fixture(scope="module")
def text():
    return make_text("xx", 12, 0)


def literal(x, y, kinds, tau, share) -> torch.Tensor:
    """Compute the loss one vector at a time in float64."""
    n, total = len(x), torch.zeros((), dtype=torch.float64)
    for a, b in ((x, y), (y, x)):
        for k in range(n):
            equal = [j for j in range(n) if j == k or kinds[j] == kinds[k] != -1]
            over = sum(torch.exp(a[k] @ b[j] / tau) for j in range(n))
            p = {j: torch.exp(a[k] @ b[j] / tau) / over for j in range(n)}
            total = total - (1 - share) * torch.log(p[k])
            total = total - share * sum(torch.log(p[j]) for j in equal) / len(equal)
    return total / (2 * n)


@pytest.mark.parametrize("tau", [0.2, 0.02])
def test_contrastive_loss_and_gradient_equal_the_formula(tau):
    """Treat equal pairs as negatives, as positives (Khosla et al. 2020, Eq. 2), and as a mixture of
    both.
    """
    rng = torch.Generator().manual_seed(0)
    exact = [
        functional.normalize(torch.randn(7, 5, generator=rng).double(), dim=1).requires_grad_()
        for _ in range(2)
    ]
    x, y = (rows.detach().float().requires_grad_() for rows in exact)
    kinds = [4, 9, 4, -1, 9, 4, -1]
    found = {
        share: info_nce(x, y, temperature=tau, kinds=torch.tensor(kinds), share=share)
        for share in (0.0, 1.0, 0.75)
    }
    assert len({round(value.item(), 3) for value in found.values()}) == 3
    for share, loss in found.items():
        total = literal(*exact, kinds, tau, share)
        assert loss.item() == pytest.approx(total.item(), rel=1e-5)
        slopes = torch.autograd.grad(total, exact, retain_graph=True)
        for gradient, slope in zip(
            torch.autograd.grad(loss, (x, y), retain_graph=True), slopes, strict=True
        ):
            torch.testing.assert_close(gradient.double(), slope, rtol=1e-4, atol=2e-6 / tau)


def test_similarity_divergence_equals_the_formula():
    """Also check that the divergence of rotated and scaled vectors is 0."""
    rng = torch.Generator().manual_seed(0)
    now, before = (torch.randn(6, 4, generator=rng) for _ in range(2))
    tau, total = 0.3, 0.0
    for i in range(6):
        q, p = (
            {
                j: math.exp(float(torch.cosine_similarity(x[i], x[j], dim=0)) / tau)
                for j in range(6)
                if j != i
            }
            for x in (now, before)
        )
        for j in p:
            of_p, of_q = p[j] / sum(p.values()), q[j] / sum(q.values())
            total += of_p * math.log(of_p / of_q)
    assert float(similarity_divergence(now, before, temperature=tau)) == pytest.approx(
        total / 6, rel=1e-5
    )
    turned = 3 * before @ torch.linalg.qr(torch.randn(4, 4, generator=rng))[0]
    assert float(similarity_divergence(turned, before, temperature=tau)) == pytest.approx(
        0, abs=1e-5
    )
    assert float(similarity_divergence(now[:2], before[:2], temperature=tau)) == 0


@pytest.fixture
def corpus():
    """Return text in which `bank` has one translation, and a word with two spellings has two
    translations.
    """
    source = [["bank", "The" if k % 3 else "the"] for k in range(N)]
    target = [["Ufer", "das" if k % 10 else "der"] for k in range(N)]
    return ParallelCorpus.of(source, target, ("en", "de"))


@pytest.fixture
def pairs():
    return WordPairs.of([[(0, 0), (1, 1)]] * N)


def test_pairs_that_are_equal_in_lower_case_have_the_same_number(corpus, pairs):
    kinds = number_word_pairs(corpus, pairs).reshape(N, 2)
    tenth = np.arange(N) % 10 == 0
    groups = [
        set(kinds[:, 0]),
        set(kinds[~tenth, 1]),
        set(kinds[tenth, 1]),
    ]  # `The` and `the` are the same word type
    assert [len(group) for group in groups] == [1, 1, 1]
    assert len(set.union(*groups)) == 3


@pytest.mark.parametrize("special", [False, True])
def test_the_loss_receives_pair_numbers_in_the_order_of_the_pairs(
    tiny_encoder, corpus, pairs, special
):
    """Record the pair numbers passed to the loss in an update with two gradient accumulation
    steps.
    """
    kinds = number_word_pairs(corpus, pairs)
    text = AlignedText(
        [corpus], [pairs], tiny_encoder, towards="de", special=special, kinds=number_word_pairs
    )
    chosen, seen = np.array([5, 20, 11, 30]), []

    def loss(batch):
        seen.append((batch.kinds.tolist(), len(batch.source)))
        return {"loss": batch.source.sum()}

    tuned = copy.copy(tiny_encoder)
    tuned.model = copy.deepcopy(tiny_encoder.model)
    Alignment(tuned, text, [3], Processes(), None, loss=loss, accumulate=2).backward([chosen])
    ((found, number),) = seen
    expected = []
    for part in np.array_split(chosen, 2):
        expected += kinds.reshape(N, 2)[part].ravel().tolist() + [-1] * (2 * len(part) * special)
    assert found == expected
    assert len(found) == number


def update(tuner, encoder, text, tuned=None):
    """Compute the loss terms and gradients of one update."""
    tuned = tuned or moved(encoder)
    terms = tuner.objective(tuned, encoder, training_data(*text), Processes()).backward(CHOSEN)
    return terms, {name: p.grad for name, p in tuned.model.named_parameters() if p.grad is not None}


def last_subwords(encoder, words):
    """Return the vector of each word's last subword, computed with transformers alone."""
    encoded = encoder.tokenizer(list(words), is_split_into_words=True, return_tensors="pt")
    rows, owner = (
        encoder.model(**encoded, output_hidden_states=True).hidden_states[3][0],
        encoded.word_ids(),
    )
    return [rows[max(k for k, word in enumerate(owner) if word == i)] for i in range(len(words))]


@pytest.mark.parametrize("special", [False, True])
def test_the_sentence_loss_equals_the_formula(tiny_encoder, text, special):
    encoder = tiny_encoder.read_as(pooling="last")
    make = Linked if special else Contrastive
    tuner = make(towards="en", similarity_distillation=0, sentences=0.4, temperature=0.3)
    terms, found = update(tuner, encoder, text)
    slow, sides = moved(encoder), []
    for side in (0, 1):
        means = [
            torch.stack(last_subwords(slow, text[0][int(n)][side].words)).mean(0) for n in CHOSEN[0]
        ]
        sides.append(torch.stack([mean / mean.norm() for mean in means]))
    total = info_nce(*sides, temperature=0.3)
    assert terms["sentences"] == pytest.approx(0.4 * total.item(), rel=1e-4)
    (0.4 * total).backward()
    _, without = update(
        make(towards="en", similarity_distillation=0, temperature=0.3), encoder, text
    )
    for name, p in slow.model.named_parameters():
        if p.grad is not None and name in without:
            torch.testing.assert_close(
                found[name] - without[name], p.grad, atol=2e-4, rtol=1e-3, msg=name
            )


@pytest.mark.parametrize(
    ("sizes", "epochs", "expected"),
    [
        ([100], 2, 8),
        ([500, 300], 2, 10),
        ([286] * 7, 4, 11),
        ([1600], 2, 32),
        ([50_000, 20], 2, 32),
        ([50_000], 0.01, 8),
    ],
)
def test_the_default_batch_is_smaller_on_short_texts(sizes, epochs, expected):
    assert Contrastive(towards="en", epochs=epochs).batch_for(sizes) == expected
    assert Contrastive(towards="en", epochs=epochs, batch=16).batch_for(sizes) == 16


def test_the_chosen_batch_is_recorded(tiny_encoder):
    fitted = Contrastive(towards="en", epochs=1).fit(
        tiny_encoder, training_data(*make_text("xx", 12, 0))
    )
    assert fitted.record["settings"]["batch"] == 8
    assert len(fitted.history) == 2
