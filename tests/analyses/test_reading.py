"""Test that the layer and the pooling with the best score are chosen, and that scores match their
formulas.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import calque
from calque.analyses.reading import (
    Reading,
    choose_reading,
    link_counts,
    paired_gain,
    retrieval_counts,
    sampled_pairs,
    score_readings,
    sentence_counts,
)
from calque.encoders.per_language import PerLanguage
from calque.encoders.random_vectors import RandomVectors
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.vectors import Embeddings
from planted_readings import embeddings, plant, text


# -- formulas --------------------------------------------------------------------------------------
def csls(x, y, k):
    """Return CSLS of all pairs of rows by loops."""
    cosine = np.zeros((len(x), len(y)))
    for i, a in enumerate(x):
        for j, b in enumerate(y):
            cosine[i, j] = a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
    result = np.zeros_like(cosine)
    for i in range(len(x)):
        for j in range(len(y)):
            near = np.sort(cosine[i])[::-1][:k].mean() + np.sort(cosine[:, j])[::-1][:k].mean()
            result[i, j] = 2 * cosine[i, j] - near
    return result


@pytest.fixture
def vectors():
    rng = np.random.default_rng(3)
    target = [rng.standard_normal((size, 6)).astype(np.float32) for size in (3, 4, 2, 5)]
    source = [rows + 0.8 * rng.standard_normal(rows.shape).astype(np.float32) for rows in target]
    return embeddings(source), embeddings(target)


def test_retrieval_counts_equal_a_double_loop(vectors):
    source, target = vectors
    pairs = WordPairs.of([[(0, 0), (2, 1)], [(1, 1), (3, 3)], [(0, 0)], [(k, k) for k in range(5)]])
    selected = np.arange(len(pairs)) % 3 != 1
    found = retrieval_counts(source, target, pairs, selected)
    scores = csls(source.data, target.data, 10)
    expected = np.zeros((4, 2))
    for k in np.flatnonzero(selected):
        sentence = pairs.sentence[k]
        i = source.offsets[sentence] + pairs.source[k]
        j = target.offsets[sentence] + pairs.target[k]
        hits = [int(scores[i].argmax() == j), int(scores[:, j].argmax() == i)]
        expected[sentence] += [sum(hits), 2]
    assert 0 < expected[:, 0].sum() < expected[:, 1].sum()
    np.testing.assert_array_equal(found, expected)


def test_links_with_words_without_vectors_count_as_wrong(vectors):
    source, target = vectors
    pairs = WordPairs.of([[(0, 0)], [(0, 0)], [(0, 0)], [(0, 0)]])
    covered = np.ones(source.n_words, dtype=bool)
    covered[0] = False
    data = np.where(covered[:, None], source.data, 0)
    partly = Embeddings(data, source.offsets, covered)
    found = retrieval_counts(partly, target, pairs, np.ones(4, dtype=bool))
    np.testing.assert_array_equal(found[:, 1], [2, 2, 2, 2])
    assert found[0, 0] == 0


def test_sentence_counts_equal_a_double_loop(vectors):
    source, target = vectors
    means = []
    for side in (source, target):
        means.append(
            [side.data[a:b].mean(0) for a, b in zip(side.offsets, side.offsets[1:], strict=False)]
        )
    scores = csls(*means, 10)
    expected = []
    for i in range(4):
        expected.append([int(scores[i].argmax() == i) + int(scores[:, i].argmax() == i), 2])
    np.testing.assert_array_equal(sentence_counts(source, target), expected)


def test_link_counts_give_the_f1():
    found = WordPairs.of([[(0, 0), (1, 2)], [(0, 1)], []])
    gold = WordPairs.of([[(0, 0), (1, 1)], [(0, 1)], [(7, 2)]])
    counts = link_counts(found, gold)
    np.testing.assert_array_equal(counts, [[2, 4], [2, 2], [0, 1]])
    precision, recall = 2 / 3, 2 / 4
    f1 = 2 * precision * recall / (precision + recall)
    assert counts[:, 0].sum() / counts[:, 1].sum() == pytest.approx(f1)


def test_the_error_of_a_gain_is_that_of_a_paired_test_if_all_sentences_have_one_query():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 50)).astype(float)
    ones = np.ones(50)
    gain, error = paired_gain(np.stack([a, ones], 1), np.stack([b, ones], 1))
    assert gain == pytest.approx(a.mean() - b.mean())
    # Both deviations are taken from their own means, so this is the classical paired error.
    assert error == pytest.approx((a - b).std(ddof=1) / math.sqrt(50))


def test_the_error_of_a_gain_agrees_with_the_bootstrap():
    rng = np.random.default_rng(1)
    queries = rng.integers(1, 12, 200).astype(float)
    a, b = rng.binomial(queries.astype(int), 0.6), rng.binomial(queries.astype(int), 0.5)
    counts, usual = np.stack([a, queries], 1), np.stack([b, queries], 1)
    gain, error = paired_gain(counts, usual)
    gains = []
    for _ in range(3000):
        rows = rng.integers(0, 200, 200)
        gains.append(a[rows].sum() / queries[rows].sum() - b[rows].sum() / queries[rows].sum())
    assert gain == pytest.approx(np.mean(gains), abs=0.003)
    assert error == pytest.approx(np.std(gains), rel=0.06)


def test_scores_are_means_over_texts_with_their_errors_combined():
    rng = np.random.default_rng(2)
    texts = []
    for n in (30, 40):
        queries = np.full((2, n), 4.0)
        right = rng.integers(0, 5, (2, n)).astype(float)
        texts.append(np.stack([right, queries], axis=2))
    usual, other = score_readings([(3, "mean"), (1, "last")], texts)
    assert (usual.gain, usual.error) == (0, 0)
    values = [text[1, :, 0].sum() / text[1, :, 1].sum() for text in texts]
    errors = [paired_gain(text[1], text[0])[1] for text in texts]
    assert other.by_text == pytest.approx(values)
    assert other.value == pytest.approx(np.mean(values))
    assert other.gain == pytest.approx(other.value - usual.value)
    assert other.error == pytest.approx(math.hypot(*errors) / 2)


# -- samples ---------------------------------------------------------------------------------------
def test_the_sample_is_evenly_spaced_over_usable_pairs_with_links():
    lines = [["a"] * length for length in (1, 0, 65, 2, 3, 4, 5)]
    corpus = ParallelCorpus.of(lines, [["b"] * max(1, len(line)) for line in lines], ("en", "de"))
    links = WordPairs.of([[(0, 0)], [], [(0, 0)], [], [(0, 0)], [(1, 1)], [(0, 0)]])
    assert sampled_pairs(corpus, links, 10).tolist() == [0, 4, 5, 6]
    assert sampled_pairs(corpus, links, 2).tolist() == [0, 6]
    assert sampled_pairs(corpus, None, 10).tolist() == [0, 3, 4, 5, 6]


def test_unseen_pairs_are_scored_if_there_are_enough_of_them(tiny_encoder, monkeypatch):
    plant(monkeypatch, 1, "last")
    corpus, links = text(120, words=3000)
    rare = choose_reading(tiny_encoder, corpus, links, pairs_per_text=100)
    assert rare.criterion == "of unseen word pairs"
    # Most of the 3,000 words occur only once in 600.
    outside = np.setdiff1d(np.arange(120), sampled_pairs(corpus, links, 100))
    seen = {word for row in outside for word in corpus[int(row)][0].words}
    sample = corpus.take(sampled_pairs(corpus, links, 100))
    expected = sum(word not in seen for sentence in sample.source for word in sentence.words)
    assert rare.texts[0]["links"] == expected
    corpus, links = text(120, words=10)
    common = choose_reading(tiny_encoder, corpus, links, pairs_per_text=100)
    assert common.criterion == "of word pairs"


def test_links_of_other_texts_in_the_same_languages_count_as_seen(tiny_encoder, monkeypatch):
    plant(monkeypatch, 1, "last")
    corpus, links = text(100, words=3000)
    alone = choose_reading(tiny_encoder, corpus, links)
    assert alone.texts[0]["unseen"]
    twice = choose_reading(tiny_encoder, [corpus, corpus], [links, links])
    assert not any(each["unseen"] for each in twice.texts)


# -- the choice ------------------------------------------------------------------------------------
@pytest.mark.parametrize("unit", ["words", "sentences", "links"])
@pytest.mark.parametrize(("layer", "pooling"), [(2, "first"), (0, "mean"), (3, "mean")])
def test_the_planted_reading_is_chosen(unit, layer, pooling, tiny_encoder, monkeypatch):
    plant(monkeypatch, layer, pooling, noise=0.3, other=4.0)
    corpus, links = text(150)
    reading = choose_reading(tiny_encoder, corpus, links, unit=unit)
    assert (reading.layer, reading.pooling) == (layer, pooling)
    assert len(reading.table) == 12
    best = reading.score(layer, pooling)
    assert best.value == max(row.value for row in reading.table)
    if reading.is_default:
        assert "none of 12 layers and poolings is better" in reading.line
    else:
        assert best.gain > 2 * best.error > 0
        assert f"layer {layer} and pooling {pooling}: {100 * best.value:.1f}" in reading.line
        assert "the default, layer 3" in reading.line
    encoder = reading.apply(tiny_encoder)
    assert (encoder.layer, encoder.pooling) == (layer, pooling)
    assert encoder.model is tiny_encoder.model


def test_a_gain_within_noise_keeps_the_default(tiny_encoder, monkeypatch):
    plant(monkeypatch, 2, "first", noise=2.45, other=2.5)
    corpus, links = text(60)
    reading = choose_reading(tiny_encoder, corpus, links)
    assert reading.is_default
    assert (reading.layer, reading.pooling) == (tiny_encoder.layer, tiny_encoder.pooling)
    assert "(the default)" in reading.line
    assert "none of 12 layers and poolings is better beyond noise" in reading.line


def test_candidates_can_be_restricted(tiny_encoder, monkeypatch):
    plant(monkeypatch, 2, "first", noise=0.3)
    corpus, links = text(60)
    reading = choose_reading(tiny_encoder, corpus, links, layers=[1, -1])
    assert {row.layer for row in reading.table} == {1, 3}
    reading = choose_reading(tiny_encoder, corpus, links, poolings=["first"])
    assert (reading.layer, reading.pooling) == (2, "first")


def test_a_record_restores_the_choice(tiny_encoder, monkeypatch):
    plant(monkeypatch, 2, "first", noise=0.3)
    reading = choose_reading(tiny_encoder, *text(60))
    assert Reading.from_record(reading.record()) == reading
    kept = choose_reading(RandomVectors(8), *text(60))
    assert Reading.from_record(kept.record()) == kept


def test_real_vectors_are_scored_as_encoded_by_each_reading(tiny_encoder):
    corpus, links = text(60, words=100)
    reading = choose_reading(tiny_encoder, corpus, links)
    for layer, pooling in ((1, "first"), (3, "mean"), (2, "last")):
        encoder = tiny_encoder.read_as(layer, pooling)
        counts = retrieval_counts(
            encoder.encode(corpus.source),
            encoder.encode(corpus.target),
            links,
            np.ones(len(links), dtype=bool),
        )
        expected = counts[:, 0].sum() / counts[:, 1].sum()
        assert reading.score(layer, pooling).value == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["random", "each", "mapped", "standardised", "small"])
def test_other_encoders_and_short_texts_keep_their_reading_with_a_reason(kind, tiny_encoder):
    corpus, links = text(60)
    encoder, reason = tiny_encoder, ""
    if kind == "random":
        encoder, reason = RandomVectors(8), "only Transformers models have poolings"
    elif kind == "each":
        encoder = PerLanguage({"en": tiny_encoder, "de": tiny_encoder})
        reason = "only Transformers models have poolings"
    elif kind == "mapped":
        encoder = calque.align(tiny_encoder, corpus, "rotation", pairs=links)
        reason = "has maps of its layers"
    elif kind == "standardised":
        encoder = calque.align(tiny_encoder, corpus, "standardize")
        reason = "are standardised"
    else:
        corpus, links = text(10)
        reason = "the text has only 50 word links to compare layers by, and 100 are needed"
    reading = choose_reading(encoder, corpus, links)
    assert reading.is_default
    assert not reading.table
    assert reason in reading.line
    assert reading.apply(encoder) is encoder


def test_contradicting_arguments_are_rejected(tiny_encoder):
    corpus, links = text(3)
    with pytest.raises(SettingError, match="unit must be one of words, sentences, links"):
        choose_reading(tiny_encoder, corpus, links, unit="texts")
    with pytest.raises(SettingError, match="needs the word links of each text"):
        choose_reading(tiny_encoder, [corpus, corpus], links)
    with pytest.raises(SettingError, match="pooling must be one of last, first, mean"):
        choose_reading(tiny_encoder, corpus, links, poolings=["max"])
    with pytest.raises(SettingError, match="layer 9 with pooling mean was not measured"):
        choose_reading(tiny_encoder, corpus, links).score(9, "mean")
