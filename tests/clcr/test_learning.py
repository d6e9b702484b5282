"""Tests of classifiers on randomly flipped labels, of order models on artificial word orders, and
of n-gram counts.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.clcr.learning import (
    OF_KEY_POINTS,
    OF_ORDER,
    HeadTraining,
    LinkedOrder,
    linked_words,
    ngram_counts,
    score_key_points,
    score_order,
    train_key_points,
    train_order,
)
from calque.clcr.networks import KeyPointHead
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.tasks.bootstrap import measure
from calque.vectors import Embeddings

TRAINING = HeadTraining(epochs=12)
NOUN, ADJECTIVE, VERB, FUNCTION = range(4)


# -- key points ------------------------------------------------------------------------------------
def links_to(marked, offsets):
    """Link each marked word to the word at the same position in the other sentence, and leave the
    other words unlinked.
    """
    sentences = np.split(marked, offsets[1:-1])
    return WordPairs.of([[(int(i), int(i)) for i in np.flatnonzero(words)] for words in sentences])


def flipped(n, positive, negative, seed=0, covered=None, dim=6, share=0.5):
    """Return vectors of words in two classes, the classes, and links that mark one class except for
    random errors.
    """
    rng = np.random.default_rng(seed)
    offsets = offsets_of(rng.integers(3, 12, n))
    clean = rng.random(offsets[-1]) < share
    data = rng.standard_normal((len(clean), dim)).astype(np.float32)
    data[:, 0] += np.where(clean, 2.0, -2.0)
    noisy = np.where(rng.random(len(clean)) < np.where(clean, positive, negative), ~clean, clean)
    mask = None if covered is None else rng.random(len(clean)) < covered
    return Embeddings(data, offsets, mask), clean, links_to(noisy, offsets)


def figures(counts, statistics):
    return {name: float(statistic(counts.sum(axis=0))) for name, statistic in statistics.items()}


def same(one, other):
    return all(
        torch.equal(a, b)
        for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_planted_flips_are_estimated_and_corrected():
    train, _, pivots = flipped(800, positive=0.35, negative=0.15)
    unseen, clean, noisy = flipped(200, positive=0.35, negative=0.15, seed=1)
    unweighted, _, without = train_key_points(train, pivots, TRAINING, confident=False)
    weighted, _, rates = train_key_points(train, pivots, TRAINING)
    assert without == {}
    assert rates["used"]
    assert (rates["positive"], rates["negative"]) == pytest.approx((0.35, 0.15), abs=0.05)
    assert rates["with_rates"] < rates["without"]
    scores = [
        score_key_points(head, unseen, noisy, threshold=0.5) for head in (unweighted, weighted)
    ]
    before, after = (float(-np.mean(np.log(np.where(clean, p, 1 - p)))) for p, *_ in scores)
    assert after < before / 2
    assert after < 0.2
    before, after = (figures(counts, OF_KEY_POINTS) for *_, counts in scores)
    assert (
        after["ambiguous"] < before["ambiguous"] / 3
    )  # the paper calls this "significantly less ambiguous"
    right = [
        np.mean((p > 0.2) == clean) for p, *_ in scores
    ]  # δ = 0.2 is close to the noise of 0.15
    assert right[1] > right[0]
    measured = measure(scores[1][1], OF_KEY_POINTS["accuracy"])
    assert measured.low < measured.value == after["accuracy"] < measured.high


def test_scores_count_only_words_with_a_vector():
    embeddings, _, pivots = flipped(30, 0.2, 0.2, covered=0.7)
    torch.manual_seed(0)
    head = KeyPointHead(6, 4)
    p, counts = score_key_points(head, embeddings, pivots, threshold=0.45)
    expected = np.zeros((30, 6), dtype=int)
    for sentence in range(30):
        links = set(pivots.source[pivots.sentence == sentence].tolist())
        for word in range(len(embeddings[sentence])):
            row = int(embeddings.offsets[sentence]) + word
            if embeddings.covered[row]:
                said, marked = p[row] > 0.45, word in links
                expected[sentence] += [
                    1,
                    said == marked,
                    said and marked,
                    said,
                    marked,
                    0.2 < p[row] < 0.8,
                ]
    assert counts.tolist() == expected.tolist()
    words, right, both, said, marked, between = expected.sum(axis=0)
    assert figures(counts, OF_KEY_POINTS) == pytest.approx(
        {
            "accuracy": right / words,
            "precision": both / said,
            "recall": both / marked,
            "ambiguous": between / words,
        }
    )
    assert np.isnan(OF_KEY_POINTS["precision"](np.zeros(6)))


def test_training_ignores_words_without_a_vector():
    embeddings, _, pivots = flipped(40, 0.1, 0.1, covered=0.6)
    head, counts, _ = train_key_points(embeddings, pivots, TRAINING, confident=False)
    assert counts["words"] == embeddings.covered.sum()
    assert counts["without_vector"] == (~embeddings.covered).sum()
    data = embeddings.data.copy()
    data[~embeddings.covered] = 1e6
    other = Embeddings(data, embeddings.offsets, embeddings.covered)
    assert same(head, train_key_points(other, pivots, TRAINING, confident=False)[0])


def test_flip_rates_are_not_used_if_no_word_is_certainly_unlinked():
    """Link 90% of words with probability 0.99 and 10% with 0.85, so no word is certainly
    unlinked.
    """
    embeddings, _, pivots = flipped(500, positive=0.01, negative=0.85, share=0.9, dim=24)
    weighted, _, rates = train_key_points(embeddings, pivots, TRAINING)
    assert rates["negative"] > 0.8
    assert rates["with_rates"] > 1.5 * rates["without"]
    assert same(train_key_points(embeddings, pivots, TRAINING, confident=False)[0], weighted)


def test_flip_rates_are_estimated_from_held_out_predictions():
    """Held-out predictions must reveal the 30% of wrong labels; overfitted predictions on the
    training text do not.
    """
    embeddings, _, pivots = flipped(200, positive=0.3, negative=0.3, dim=150)
    for published, wrong, within in ((False, 0.3, 0.1), (True, 0.0, 0.01)):
        rates = train_key_points(
            embeddings, pivots, HeadTraining(epochs=40), as_published=published
        )[2]
        assert (rates["positive"], rates["negative"]) == pytest.approx((wrong, wrong), abs=within)
    assert rates["used"]


def test_classifiers_can_be_trained_on_one_word_but_not_on_empty_text():
    one = Embeddings(np.ones((1, 6), dtype=np.float32), np.array([0, 0, 1]))
    _, counts, rates = train_key_points(one, WordPairs.of([[], [(0, 0)]]), TRAINING)
    assert counts == {"words": 1, "labelled": 1, "without_vector": 0}
    assert not rates["used"]  # flip rates cannot be estimated from a single label
    nothing = Embeddings(np.zeros((0, 6), dtype=np.float32), np.array([0, 0]))
    with pytest.raises(SettingError, match="no sentence can be used for training"):
        train_key_points(nothing, WordPairs.of([[]]), TRAINING)


# -- orders ----------------------------------------------------------------------------------------
def planted(n, seed):
    """Return linked sentences of three to six phrases; the second language has verbs last and
    adjectives after their nouns.

    Function words, such as determiners before nouns, are not linked. The vector of a word encodes
    its class, with noise.
    """
    rng = np.random.default_rng(seed)
    kinds = [(VERB,), (NOUN,), (ADJECTIVE, NOUN), (FUNCTION, NOUN), (FUNCTION, ADJECTIVE, NOUN)]
    vectors = 2.0 * np.eye(4, 8)
    data, lengths, links = [], [], []
    for _ in range(n):
        words = [
            kind for k in rng.integers(len(kinds), size=rng.integers(3, 7)) for kind in kinds[k]
        ]
        order = list(range(len(words)))
        for k in range(len(words) - 1):
            if words[k] == ADJECTIVE:
                order[k], order[k + 1] = order[k + 1], order[k]
        order = sorted(order, key=lambda word: words[word] == VERB)
        order = [word for word in order if words[word] != FUNCTION]
        links.append([(word, place) for place, word in enumerate(order)])
        lengths.append(len(words))
        data.append(vectors[words] + 0.3 * rng.standard_normal((len(words), 8)))
    return Embeddings(np.concatenate(data).astype(np.float32), offsets_of(lengths)), WordPairs.of(
        links
    )


def test_the_relative_model_predicts_a_planted_order_better_than_the_absolute_model():
    train, unseen = planted(400, 0), planted(100, 1)
    found = {}
    for kind in ("relative", "absolute"):
        scores = score_order(train_order(*train, HeadTraining(epochs=30), kind)[0], *unseen)
        found[kind] = {name: figures(counts, OF_ORDER) for name, counts in scores.items()}
    assert found["relative"]["n = 10"]["bleu-4"] >= 0.95
    assert found["relative"]["n = 1"]["bleu-4"] >= 0.9
    assert found["absolute"]["n = 10"]["bleu-4"] < found["relative"]["n = 10"]["bleu-4"] - 0.1
    assert (
        found["absolute"]["n = 10"]["bleu-2"] > found["absolute"]["as it stands"]["bleu-2"]
    )  # the predicted order is better than the source order
    assert found["relative"]["as it stands"]["bleu-2"] < 0.7
    measured = measure(scores["n = 10"], OF_ORDER["bleu-4"])
    assert measured.low < measured.value == found["absolute"]["n = 10"]["bleu-4"] < measured.high


def literal_counts(order, gold):
    """Return the number of n-grams that occur in the other sequence, and the number of all n-grams,
    for n = 1 to 4.
    """
    grams = [
        [seq[k : k + n] for k in range(len(seq) - n + 1)]
        for n in range(1, 5)
        for seq in (order, gold)
    ]
    return [
        sum(g in right for g in mine) for mine, right in zip(grams[::2], grams[1::2], strict=True)
    ] + [len(mine) for mine in grams[::2]]


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 8), max_size=5), seed=st.integers(0, 10**6))
def test_ngram_counts_match_a_loop_over_n_grams(lengths, seed):
    rng = np.random.default_rng(seed)
    orders, ranks, expected = [], [], []
    for n in lengths:
        gold = list(range(n))
        found = list(range(n))
        for _ in range(2):  # make only a few changes, so some n-grams remain
            for seq in (gold, found):
                a, b = sorted(rng.integers(0, n + 1, 2))
                seq[a:b] = seq[a:b][::-1]
        orders += found
        ranks += np.argsort(gold).tolist()
        expected.append(literal_counts(found, gold))
    counts = ngram_counts(
        np.array(orders, dtype=int), np.array(ranks, dtype=int), np.array(lengths, dtype=int)
    )
    assert counts.tolist() == expected
    if lengths and max(lengths) >= 3:
        right, all_ = np.array(expected).sum(axis=0).reshape(2, 4)
        assert OF_ORDER["bleu-3"](counts.sum(axis=0)) == pytest.approx(right[2] / all_[2])


def test_unusable_links_are_skipped_and_counted_in_gold_orders():
    covered = np.array([True, True, False, True, True, True, True, True])
    embeddings = Embeddings(np.zeros((8, 2), dtype=np.float32), np.array([0, 4, 4, 6, 8]), covered)
    pairs = WordPairs.of([[(3, 0), (0, 5), (2, 1), (1, 9)], [], [(0, 0), (1, 0)], [(1, 2)]])
    gold = LinkedOrder.of(embeddings, pairs)
    assert gold.lengths.tolist() == [3, 0, 0, 0]
    assert gold.positions.tolist() == [0, 1, 3]
    assert gold.ranks.tolist() == [1, 2, 0]
    assert np.flatnonzero(gold.chosen).tolist() == [0, 1, 3]
    assert gold.skipped == {
        "links_not_one_to_one": 2,
        "links_without_vector": 1,
        "sentences_with_fewer_than_2_key_points": 3,
    }
    assert np.flatnonzero(linked_words(embeddings, pairs)).tolist() == [0, 1, 3, 4, 5, 7]
    with pytest.raises(SettingError, match="requires a sentence with two pivots"):
        train_order(embeddings, WordPairs.of([[], [], [(0, 0)], []]), TRAINING)
