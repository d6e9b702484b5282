"""Key points from noisy labels: flips planted at known rates are estimated, weighed as the formula says, and made up for."""

import numpy as np
import pytest
import torch

from calque.clcr.extracting import STATISTICS, Extracting, score_key_points
from calque.clcr.heads import HeadTraining
from calque.clcr.networks import KeyPointHead
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.tasks.bootstrap import measure
from calque.vectors import Embeddings

TRAINING = HeadTraining(epochs=6, learning_rate=5e-3, batch=16)
SETTINGS = {"hidden": 16, "dropout": 0.0, "training": TRAINING}


def links_to(marked, offsets):
    """Each marked word of a sentence linked to a word of its own."""
    sentences = np.split(marked, offsets[1:-1])
    return WordPairs.of([[(int(i), int(i)) for i in np.flatnonzero(words)] for words in sentences])


def planted(n, positive, negative, seed=0, covered=None, dim=6, share=0.5):
    """Sentences whose words are of two kinds, told by their vectors, and labels of which some are flipped."""
    rng = np.random.default_rng(seed)
    offsets = offsets_of(rng.integers(3, 12, n))
    clean = rng.random(offsets[-1]) < share
    data = rng.standard_normal((len(clean), dim)).astype(np.float32)
    data[:, 0] += np.where(clean, 2.0, -2.0)
    noisy = np.where(rng.random(len(clean)) < np.where(clean, positive, negative), ~clean, clean)
    mask = None if covered is None else rng.random(len(clean)) < covered
    return Embeddings(data, offsets, mask), clean, links_to(noisy, offsets)


def figures(scores):
    return {name: float(statistic(scores.counts.sum(axis=0))) for name, statistic in STATISTICS.items()}


def cross_entropy(probabilities, truth):
    return float(-np.mean(np.log(np.where(truth, probabilities, 1 - probabilities))))


def test_planted_flips_are_estimated_and_made_up_for():
    train, _, pivots = planted(800, positive=0.35, negative=0.15)
    unseen, clean, noisy = planted(200, positive=0.35, negative=0.15, seed=1)
    plain = Extracting(confident=False, **SETTINGS).train(train, pivots)
    mended = Extracting(**SETTINGS).train(train, pivots)
    assert plain.rates == {}
    assert mended.rates["used"]
    assert (mended.rates["positive"], mended.rates["negative"]) == pytest.approx((0.35, 0.15), abs=0.05)
    assert mended.rates["with_rates"] < mended.rates["without"]
    scores = [score_key_points(each.head, unseen, noisy, threshold=0.5) for each in (plain, mended)]
    before, after = (cross_entropy(each.probabilities, clean) for each in scores)
    measured = measure(scores[1].counts, STATISTICS["accuracy"])
    assert measured.value == figures(scores[1])["accuracy"]
    assert measured.low < measured.value < measured.high
    assert after < before / 2
    assert after < 0.2
    assert figures(scores[1])["ambiguous"] < figures(scores[0])["ambiguous"] / 3  # "significantly less ambiguous"
    right = [np.mean((each.probabilities > 0.2) == clean) for each in scores]  # at δ = 0.2 noise of 0.15 is near
    assert right[1] > right[0]


def test_scores_are_counts_over_the_words_that_have_a_vector():
    embeddings, _, pivots = planted(30, 0.2, 0.2, covered=0.7)
    torch.manual_seed(0)
    head = KeyPointHead(6, 4)
    scores = score_key_points(head, embeddings, pivots, threshold=0.45)
    expected = np.zeros((30, 6), dtype=int)
    p = head.probabilities(embeddings.data)
    for sentence in range(30):
        links = set(pivots.source[pivots.sentence == sentence].tolist())
        for word in range(len(embeddings[sentence])):
            row = int(embeddings.offsets[sentence]) + word
            if embeddings.covered is not None and embeddings.covered[row]:
                said, marked = p[row] > 0.45, word in links
                expected[sentence] += [1, said == marked, said and marked, said, marked, 0.2 < p[row] < 0.8]
    assert scores.counts.tolist() == expected.tolist()
    words, right, both, said, marked, between = expected.sum(axis=0)
    assert figures(scores) == pytest.approx(
        {"accuracy": right / words, "precision": both / said, "recall": both / marked, "ambiguous": between / words}
    )
    assert np.isnan(STATISTICS["precision"](np.zeros(6)))


def test_words_without_a_vector_are_neither_learnt_nor_marked():
    embeddings, _, pivots = planted(40, 0.1, 0.1, covered=0.6)
    trained = Extracting(confident=False, **SETTINGS).train(embeddings, pivots)
    assert embeddings.covered is not None
    assert trained.counts["words"] == embeddings.covered.sum()
    assert trained.counts["without_vector"] == (~embeddings.covered).sum()
    data = embeddings.data.copy()
    data[~embeddings.covered] = 1e6
    again = Extracting(confident=False, **SETTINGS).train(
        Embeddings(data, embeddings.offsets, embeddings.covered), pivots
    )
    assert same(trained.head, again.head)


def test_where_every_word_has_a_partner_the_share_of_labels_is_no_flip_rate():
    """One word in ten is rare and labelled 85 times in 100, the others 99: no class is labelled by mistake."""
    embeddings, _, pivots = planted(500, positive=0.01, negative=0.85, share=0.9, dim=24)
    plain = Extracting(confident=False, **SETTINGS).train(embeddings, pivots)
    mended = Extracting(**SETTINGS).train(embeddings, pivots)
    assert mended.rates["negative"] > 0.8
    assert mended.rates["with_rates"] > 2 * mended.rates["without"]
    assert same(plain.head, mended.head)


def test_flip_rates_are_of_words_that_the_classifier_has_not_learnt():
    """It learns three wrong labels in ten by heart: of its own text it says that none is wrong."""
    embeddings, _, pivots = planted(300, positive=0.3, negative=0.3, dim=200)
    training = HeadTraining(epochs=20, learning_rate=5e-3, batch=16)
    for published, flipped, within in ((False, 0.3, 0.1), (True, 0.0, 0.01)):
        how = Extracting(as_published=published, hidden=64, dropout=0.0, training=training)
        rates = how.train(embeddings, pivots).rates
        assert (rates["positive"], rates["negative"]) == pytest.approx((flipped, flipped), abs=within)
    assert rates["used"]


def test_one_sentence_of_one_word_and_no_word_at_all():
    one = Embeddings(np.ones((1, 6), dtype=np.float32), np.array([0, 0, 1]))
    trained = Extracting(**SETTINGS).train(one, WordPairs.of([[], [(0, 0)]]))
    assert trained.counts == {"words": 1, "labelled": 1, "without_vector": 0}
    assert not trained.rates["used"]  # labels that are all alike
    nothing = Embeddings(np.zeros((0, 6), dtype=np.float32), np.array([0, 0]))
    with pytest.raises(SettingError, match="no sentence to learn from"):
        Extracting(**SETTINGS).train(nothing, WordPairs.of([[]]))


def test_links_of_other_text_are_refused():
    embeddings, _, pivots = planted(5, 0, 0)
    with pytest.raises(SettingError, match="links of 4 sentence pairs for vectors of 5 sentences"):
        Extracting(**SETTINGS).train(embeddings, pivots.slice(0, 4))
    with pytest.raises(SettingError, match="a link to word 99 .from 0. of sentence 1"):
        Extracting(**SETTINGS).train(embeddings, WordPairs.of([[], [(99, 0)], [], [], []]))


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))
