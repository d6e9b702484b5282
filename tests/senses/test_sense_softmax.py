"""Compare Equations 3 to 7 of Multi-sense with dense float64 sums over all senses and over a sample
of senses.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from calque.annotated import Dictionary
from calque.distributed import Processes
from calque.senses import sense_table as softmax
from calque.senses.sense_table import Sampler, SenseTable, Softmax, Targets
from calque.senses.training import Senses, SenseTraining, Translations

DIM = 6
SENSES = [3, 1, 4, 2, 1, 3, 2, 2, 3, 1]  # number of senses of each of ten words, 22 in total
PRUNED = [1, 6, 9, 18]


def small_table(senses=SENSES, pruned=PRUNED, seed: int = 0) -> SenseTable:
    torch.manual_seed(seed)
    table = SenseTable(senses, DIM, axes=3, queue=10, spread=1.0)
    table.open(start="kept")
    table.live[pruned] = False
    with torch.no_grad():
        table.bias.normal_()
    return table


def literal_loss(states, weight, bias, targets: Targets, candidates, log_q) -> Tensor:
    """Compute the weighted loss in a loop over states and targets: −log softmax over the target and
    its candidates.
    """
    total = torch.zeros((), dtype=torch.float64)
    for n, (classes, weights) in enumerate(
        zip(targets.classes.tolist(), targets.weights.tolist(), strict=True)
    ):
        for c, share in zip(classes, weights, strict=True):
            if share:
                among = [c, *(other for other in candidates[n] if other != c)]
                scores = torch.stack(
                    [states[n] @ weight[other] + bias[other] - log_q[other] for other in among]
                )
                total = total - share * scores.log_softmax(0)[0]
    return total


def assert_as_literal(
    head: Softmax, targets: Targets, negatives, candidates, log_q, side: int = 0
) -> None:
    """Check the loss, its gradient with respect to the states, and the gradient of each row of the
    table.
    """
    torch.manual_seed(5)
    table, states = head.senses[side], torch.randn(len(targets.classes), DIM)
    exact = [x.detach().double().requires_grad_() for x in (states, table.weight, table.bias)]
    expected = literal_loss(exact[0], exact[1], exact[2], targets, candidates, log_q)
    theirs = torch.autograd.grad(expected, exact)
    states.requires_grad_()
    table.weight.grad = table.bias.grad = None
    found = head.loss(states, targets, side, negatives)
    found.backward()
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    for one, other in zip((states.grad, table.weight.grad, table.bias.grad), theirs, strict=True):
        assert one is not None
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


def drawn_targets(table: SenseTable, n: int = 25, several: int = 3, seed: int = 0) -> Targets:
    """Return n targets, each with one sense of a word and at most `several - 1` senses of other
    words.
    """
    rng = np.random.default_rng(seed)
    live, words = table.live.nonzero().flatten().numpy(), table.words.numpy()
    classes, weights = np.full((n, several), -1), np.zeros((n, several))
    for k in range(n):
        different = rng.permutation(table.n_words)[:several]
        for place, word in enumerate(different):
            if place == 0 or rng.random() < 0.6:
                classes[k, place] = rng.choice(live[words[live] == word])
        number = (classes[k] >= 0).sum() - 1
        weights[k] = np.where(classes[k] >= 0, 0.5 / max(1, number), 0)
        weights[k, 0] = 0.5 if number else 1
    return Targets(torch.from_numpy(classes), torch.from_numpy(weights).float())


# -- all senses ------------------------------------------------------------------------------------
@pytest.mark.parametrize("side", [0, 1])
def test_loss_over_all_senses_equals_the_dense_softmax(side):
    """Check Eqs. 3 and 4 over all V·S classes that are not pruned."""
    head = Softmax([small_table(), small_table(seed=1)])
    targets = drawn_targets(head.senses[side], several=1)
    live = [c for c in range(22) if c not in PRUNED]
    assert head.draw(np.random.default_rng(0)) == [None, None]
    assert_as_literal(head, targets, None, [live] * 25, [0.0] * 22, side)
    assert not head.senses[side].weight.grad[PRUNED].any()
    assert (head.senses[side].weight.grad[live] != 0).all()


# -- sampled senses --------------------------------------------------------------------------------
def test_loss_over_a_sample_equals_the_naive_loss():
    """Negatives are all sampled classes except the target, even if they are other senses of the
    target word.
    """
    head = Softmax([small_table()], negatives=7)
    table = head.senses[0]
    sampler = Sampler(table)
    targets = drawn_targets(table, 60)
    negatives = sampler.draw(7, np.random.default_rng(8))
    assert negatives is not None
    drawn = set(negatives.classes.tolist())
    log_q = sampler.log_expected(np.arange(22), negatives.tries)
    hits, of_own = 0, 0
    for classes in targets.classes.tolist():
        answers = {c for c in classes if c >= 0}
        word = table.words[classes[0]]
        others = {
            c for c in range(22) if table.words[c] == word and table.live[c] and c != classes[0]
        }
        hits, of_own = hits + len(answers & drawn), of_own + len(others & drawn)
    assert hits > 5
    assert of_own > 5
    assert_as_literal(head, targets, negatives, [drawn] * 60, log_q)


def test_samples_contain_no_pruned_senses_and_follow_their_probabilities():
    table = small_table([3] * 20, pruned=[0, 1, 7, 31])
    sampler, rng, times, count = Sampler(table), np.random.default_rng(0), 4000, 15
    hits, expected = np.zeros(60), np.zeros(60)
    for _ in range(times):
        found = sampler.draw(count, rng)
        assert found is not None
        assert len(set(found.classes.tolist())) == count == len(found.classes)
        hits[found.classes] += 1
        expected += np.exp(sampler.log_expected(np.arange(60), found.tries))
    gone = [0, 1, 7, 31]
    kept = np.setdiff1d(np.arange(60), gone)
    assert not hits[gone].any()
    # Given the number of tries, the formula approximates sampling without replacement.
    assert np.abs(hits - expected)[kept].max() / times < 0.03
    # The probability of a word depends only on its rank, and all of its senses are equally
    # probable.
    p = np.log((np.arange(20) + 2) / (np.arange(20) + 1)) / np.log(21)
    once = np.exp(sampler.log_expected(np.arange(60), 1))
    assert once[2] == pytest.approx(p[0])  # the only remaining sense of the word
    np.testing.assert_allclose(once[[3, 4, 5]], p[1] / 3)
    np.testing.assert_allclose(once[[6, 8]], p[2] / 2)
    assert once[kept].sum() == pytest.approx(1)
    one, other = (sampler.draw(count, np.random.default_rng(7)) for _ in range(2))
    assert one is not None
    assert other is not None
    assert np.array_equal(one.classes, other.classes)


# -- targets ---------------------------------------------------------------------------------------
def literal_targets(
    table: SenseTable, state, word: int, translations: list[list[int]]
) -> tuple[list[int], list[float]]:
    """Return the nearest sense of the word, and for each other language the nearest sense among its
    translations.
    """

    def nearest(words: list[int]) -> int:
        possible = [
            c for word in words for c in range(22) if table.words[c] == word and table.live[c]
        ]
        a, b = state @ table.projection, table.centres[possible] @ table.projection
        return possible[int(torch.cosine_similarity(a[None], b).argmax())]

    found = [nearest(several) if several else -1 for several in translations]
    found = [c if c not in found[:k] else -1 for k, c in enumerate(found)]
    number = sum(c >= 0 for c in found)
    return [nearest([word]), *found], [
        0.5 if number else 1.0,
        *(0.5 / number if c >= 0 else 0.0 for c in found),
    ]


def test_targets_include_translations_into_two_other_languages():
    """Check Eq. 7, and Eq. 6 averaged over languages; a sense shared by two languages counts only
    once.
    """
    words = ["bank", "river", "ufer", "fluss", "banco", "orilla", "geld", "taxi", "dinero", "rive"]
    dictionaries = [
        Dictionary(
            ("bank", "bank", "river", "taxi"), ("ufer", "geld", "fluss", "taxi"), ("en", "de")
        ),
        Dictionary(("bank", "bank", "river"), ("banco", "orilla", "taxi"), ("en", "es")),
        Dictionary(("geld", "fluss", "ufer"), ("dinero", "river", "orilla"), ("de", "es")),
    ]
    translations = Translations(
        dictionaries, ["en", "de", "es"], {word: k for k, word in enumerate(words)}
    )
    named = {
        ("en", "bank"): [["ufer", "geld"], ["banco", "orilla"]],
        ("en", "river"): [["fluss"], ["taxi"]],
        ("de", "ufer"): [["bank"], ["orilla"]],
        ("de", "fluss"): [["river"], ["river"]],  # both languages have the same translation
        ("de", "geld"): [["bank"], ["dinero"]],
        ("es", "banco"): [["bank"], []],
        ("es", "orilla"): [["bank"], ["ufer"]],
        ("es", "dinero"): [[], ["geld"]],
        ("es", "taxi"): [["river"], []],
        ("es", "river"): [[], ["fluss"]],
    }
    table = small_table()
    training = SenseTraining([table], Senses(senses=4), 10, Processes(), translations)
    torch.manual_seed(3)
    states, rng = torch.randn(80, DIM), np.random.default_rng(0)
    languages, numbers = rng.integers(0, 3, 80), rng.integers(0, 10, 80)
    found = training.targets({0: states}, torch.from_numpy(numbers), torch.from_numpy(languages))
    whole = torch.from_numpy(rng.random(80) < 0.5)
    of_whole = training.targets(
        {0: states}, torch.from_numpy(numbers), torch.from_numpy(languages), whole
    )
    kinds = set()
    for k in range(80):
        several = named.get((["en", "de", "es"][languages[k]], words[numbers[k]]), [[], []])
        several = [[words.index(word) for word in of_language] for of_language in several]
        for targets, these in ((found, several), (of_whole, several if whole[k] else [[], []])):
            classes, weights = literal_targets(table, states[k], int(numbers[k]), these)
            assert targets.classes[k].tolist() == classes, (languages[k], words[numbers[k]])
            assert targets.weights[k].tolist() == weights
            kinds.add(tuple(weights))
    assert kinds == {(1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.5, 0.0, 0.5), (0.5, 0.25, 0.25)}
    head = Softmax([table])
    live = [c for c in range(22) if c not in PRUNED]
    assert_as_literal(head, Targets(*(x[:30] for x in found)), None, [live] * 30, [0.0] * 22)


# -- word probabilities ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "held", [4_000_000, 40]
)  # maximum number of logits: enough for all states or for two
def test_the_probability_of_a_word_is_the_sum_over_its_senses(held, monkeypatch):
    monkeypatch.setattr(softmax, "MAX_LOGITS", held)
    head = Softmax([small_table(), small_table(seed=1)], negatives=5)
    states, words = torch.randn(9, DIM), torch.randint(10, (9,))
    for side, table in enumerate(head.senses):
        found, scores = (
            head.negative_log_likelihood(states, words, side),
            (states @ table.weight.t() + table.bias).tolist(),
        )
        for n in range(9):
            each = {c: math.exp(scores[n][c]) for c in range(22) if table.live[c]}
            of_word = sum(value for c, value in each.items() if table.words[c] == words[n])
            assert float(found[n]) == pytest.approx(
                -math.log(of_word / sum(each.values())), rel=1e-5
            )
    every = head.negative_log_likelihood(states[:1].expand(10, DIM), torch.arange(10), 0)
    assert float((-every).exp().sum()) == pytest.approx(1)
    assert head.negative_log_likelihood(states[:0], words[:0], 0).shape == (0,)
