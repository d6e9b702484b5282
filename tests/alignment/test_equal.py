"""Equal pairs in one sense as positives of the contrastive loss: the formula, the senses, and that they reach the loss."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from calque.alignment.aligned import AlignedText
from calque.alignment.contrastive import Contrastive
from calque.alignment.equal import senses_of_pairs
from calque.alignment.losses import info_nce, neighbours_lost
from calque.alignment.update import Alignment
from calque.distributed import Processes
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.vectors import Embeddings

N = 60  # occurrences of each word


class Planted:
    """Vectors around one centre for each word; around two, every other time, for `bank`."""

    def encode(self, sentences):
        rng, rows = np.random.default_rng(0), []
        for number, sentence in enumerate(sentences):
            for word in sentence.words:
                centre = np.zeros(6)
                centre[number % 2 if word == "bank" else 2 + len(word) % 4] = 1
                rows.append(centre + 0.05 * rng.standard_normal(6))
        lengths = [len(sentence.words) for sentence in sentences]
        return Embeddings(np.array(rows, dtype=np.float32), np.concatenate([[0], np.cumsum(lengths)]))


@pytest.fixture
def corpus():
    """A word of two senses, a word of one, written in two ways, and another translation of the latter."""
    source = [["bank", "The" if k % 3 else "the"] for k in range(N)]
    target = [["Ufer", "das" if k % 10 else "der"] for k in range(N)]
    return ParallelCorpus.of(source, target, ("en", "de"))


@pytest.fixture
def pairs():
    sentence = np.repeat(np.arange(N), 2)
    return WordPairs(sentence, np.tile([0, 1], N), np.tile([0, 1], N), n_sentences=N)


def test_pairs_are_equal_by_words_and_by_sense(corpus, pairs):
    kinds = senses_of_pairs(Planted(), corpus, pairs, most=3).reshape(N, 2)
    even, odd = set(kinds[::2, 0]), set(kinds[1::2, 0])
    assert len(even) == len(odd) == 1  # all occurrences in a sense are of one kind
    assert even != odd
    tenth = np.arange(N) % 10 == 0
    das, der = set(kinds[~tenth, 1]), set(kinds[tenth, 1])  # The and the are one word
    assert len(das) == len(der) == 1
    assert len(even | odd | das | der) == 4


def test_without_senses_words_alone_count(corpus, pairs):
    kinds = senses_of_pairs(Planted(), corpus, pairs, most=1).reshape(N, 2)
    assert len(set(kinds[:, 0])) == 1
    assert len(set(kinds.flat)) == 3


def literal(x, y, kinds, tau, strong, same) -> float:
    """The loss, one row after the other."""
    n, total = len(x), 0.0
    for a, b in ((x, y), (y, x)):
        for k in range(n):
            equal = [j for j in range(n) if j == k or (same != "negative" and kinds[j] == kinds[k] != -1)]
            left_out = [j for j in equal if j != k] if same == "ignored" else []
            over = sum(math.exp(float(a[k] @ b[j]) / tau) for j in range(n) if j not in left_out)
            if strong:
                over += sum(math.exp(float(a[k] @ a[j]) / tau) for j in range(n) if j not in equal)
            shares = {j: math.exp(float(a[k] @ b[j]) / tau) / over for j in range(n)}
            if same == "one":
                total -= math.log(sum(shares[j] for j in equal))
            elif same == "each":
                total -= sum(math.log(shares[j]) for j in equal) / len(equal)
            else:
                total -= math.log(shares[k])
    return total / (2 * n)


@pytest.mark.parametrize("strong", [False, True])
def test_the_loss_is_the_formula(strong):
    """Each answer to what equal pairs are, and a mixture; `each` is Khosla et al. (2020), Eq. 2."""
    rng = torch.Generator().manual_seed(0)
    x, y = (torch.nn.functional.normalize(torch.randn(7, 5, generator=rng), dim=1) for _ in range(2))
    kinds, tau = [4, 9, 4, -1, 9, 4, -1], 0.2
    expected = {same: literal(x, y, kinds, tau, strong, same) for same in ("negative", "ignored", "one", "each")}
    assert len({round(value, 3) for value in expected.values()}) == 4
    for same, value in expected.items():
        loss = info_nce(x, y, temperature=tau, strong=strong, kinds=torch.tensor(kinds), same={same: 1.0})
        assert float(loss) == pytest.approx(value, rel=1e-5)
    mixed = info_nce(
        x, y, temperature=tau, strong=strong, kinds=torch.tensor(kinds), same={"negative": 0.25, "each": 0.75}
    )
    assert float(mixed) == pytest.approx(0.25 * expected["negative"] + 0.75 * expected["each"], rel=1e-5)


def test_neighbours_lost_is_the_formula():
    """Of each word the divergence of its neighbours before from those now; 0 for what was only turned and stretched."""
    rng = torch.Generator().manual_seed(0)
    now, before = (torch.randn(6, 4, generator=rng) for _ in range(2))
    tau, total = 0.3, 0.0
    for i in range(6):
        q, p = (
            {j: math.exp(float(torch.cosine_similarity(x[i], x[j], dim=0)) / tau) for j in range(6) if j != i}
            for x in (now, before)
        )
        for j in p:
            of_p, of_q = p[j] / sum(p.values()), q[j] / sum(q.values())
            total += of_p * math.log(of_p / of_q)
    assert float(neighbours_lost(now, before, temperature=tau)) == pytest.approx(total / 6, rel=1e-5)
    turned = 3 * before @ torch.linalg.qr(torch.randn(4, 4, generator=rng))[0]
    assert float(neighbours_lost(turned, before, temperature=tau)) == pytest.approx(0, abs=1e-5)
    assert float(neighbours_lost(now[:2], before[:2], temperature=tau)) == 0


def test_pairs_of_their_own_kind_change_nothing():
    rng = torch.Generator().manual_seed(0)
    x, y = (torch.nn.functional.normalize(torch.randn(7, 5, generator=rng), dim=1) for _ in range(2))
    for strong in (False, True):
        plain, own = (info_nce(x, y, temperature=0.1, strong=strong, kinds=k) for k in (None, torch.arange(7)))
        torch.testing.assert_close(plain, own)


@pytest.mark.parametrize("special", [False, True])
def test_kinds_reach_the_loss_in_the_order_of_the_pairs(tiny_encoder, corpus, pairs, special):
    """A loss that counts: of the pairs of an update, in two parts, those that are equal to another."""
    kinds = senses_of_pairs(Planted(), corpus, pairs, most=1)
    text = AlignedText([corpus], [pairs], tiny_encoder, towards="de", special=special, kinds=lambda *_: kinds)
    chosen, seen = np.array([5, 20, 11, 40]), []

    def loss(groups, processes):
        seen.append((groups[0].kinds.squeeze(1).tolist(), groups[0].n_pairs))
        return {"loss": groups[0].source.sum()}

    tuned = copy.copy(tiny_encoder)
    tuned.model = copy.deepcopy(tiny_encoder.model)
    Alignment(tuned, text, [3], Processes(), None, loss=loss, accumulate=2).backward([chosen])
    ((found, number),) = seen
    expected = []
    for part in np.array_split(chosen, 2):
        expected += kinds.reshape(N, 2)[part].ravel().tolist() + [-1] * (2 * len(part) * special)
    assert found == expected
    assert len(found) == number


def test_an_update_learns_from_them(tiny_encoder, corpus, pairs):
    def first_loss(same: str, share: float = 1.0) -> float:
        how = Contrastive(towards="de", same=same, same_share=share, batch=8, epochs=0.2, learning_rate=1e-9)
        how.tune(tiny_encoder, corpus, pairs)
        assert how.settings()["same"] == same
        return how.history[0]["loss"]

    negative, ignored, one, each = (first_loss(same) for same in ("negative", "ignored", "one", "each"))
    assert one < ignored < negative
    assert first_loss("each", 0.25) == pytest.approx(0.75 * negative + 0.25 * each, rel=1e-4)
    assert first_loss("one", 0.0) == first_loss("negative", 0.5) == pytest.approx(negative, rel=1e-6)


def test_what_cannot_be_is_refused():
    for name, value in (("same_senses", 0), ("same_share", 1.5), ("same", "both"), ("keep", -1.0)):
        with pytest.raises(SettingError, match=name):
            Contrastive(towards="de", **{name: value})
