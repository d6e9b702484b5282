"""Lexicon induction against the slowest possible program."""

import numpy as np
import pytest

from calque.anchors import anchors_of
from calque.annotated import Dictionary
from calque.errors import SettingError
from calque.tasks.lexicon import Lexicon, by_frequency
from calque.text import Sentences
from calque.vectors import Embeddings
from planted import Planted, words


def test_anchors_are_means_over_occurrences():
    rng = np.random.default_rng(0)
    text = words(rng, 30, "en")
    data = rng.standard_normal((sum(map(len, text)), 5)).astype(np.float32)
    covered = rng.random(len(data)) > 0.1
    embeddings = Embeddings(data, np.cumsum([0, *map(len, text)]), covered)
    found = anchors_of(Sentences.of(text, "en"), embeddings, at_least=3)
    flat = [word for sentence in text for word in sentence]
    slow = {}
    for word, row, has in zip(flat, data.astype(np.float64), covered, strict=True):
        if has:
            slow.setdefault(word, []).append(row)
    slow = {word: rows for word, rows in slow.items() if len(rows) >= 3}
    assert set(found.words) == set(slow)
    for word, vector, count in zip(found.words, found.vectors, found.counts, strict=True):
        assert count == len(slow[word])
        np.testing.assert_allclose(vector, np.mean(slow[word], axis=0), atol=1e-6)
    assert list(found.counts) == sorted(found.counts, reverse=True)
    assert len(anchors_of(Sentences.of(text, "en"), embeddings, most=2)) == 2


class Noisy(Planted):
    """German words are a little off."""

    def vector(self, word):
        noise = np.random.default_rng(int(word[1:])).standard_normal(self.dim)
        return super().vector(word) + (1.2 * noise if word[0] == "d" else 0)


@pytest.mark.parametrize("similarity", ["csls", "cosine"])
def test_ranks_are_those_of_a_double_loop(similarity):
    source = (*tuple(f"e{k}" for k in range(40)), "e3", "e5")
    target = (*tuple(f"d{k}" for k in range(40)), "d30", "d6")
    dictionary = Dictionary(source, target, ("en", "de"))
    task = Lexicon(dictionary, vocabulary=[f"d{k}" for k in range(40, 60)], similarity=similarity, k=5, bootstrap=0)
    scores = {score.metric: score for score in task.evaluate(Noisy(dim=8))}
    x, y = task.anchors(Noisy(dim=8))

    def unit(v):
        return v.astype(np.float64) / np.linalg.norm(v)

    cosine = np.array([[unit(a) @ unit(b) for b in y.vectors] for a in x.vectors])
    hubness = np.sort(cosine, axis=0)[-5:].mean(axis=0) if similarity == "csls" else np.zeros(len(y))
    ranks = []
    for i, word in enumerate(x.words):
        right = [j for j, other in enumerate(y.words) if (word, other) in set(zip(source, target, strict=True))]
        value = 2 * cosine[i] - hubness
        best = max(value[j] for j in right)
        ranks.append(1 + sum(value[j] >= best for j in range(len(y)) if j not in right))
    ranks = np.array(ranks)
    assert scores["p@1"].value == pytest.approx((ranks <= 1).mean())
    assert scores["p@5"].value == pytest.approx((ranks <= 5).mean())
    assert scores["mrr"].value == pytest.approx((1 / ranks).mean())
    assert scores["p@1"].n == 40
    assert 0.2 < scores["p@1"].value < 1


def test_words_without_a_vector_are_left_out_and_counted():
    dictionary = Dictionary(("e1", "e2", "e99"), ("d1", "d2", "d1"), ("en", "de"))
    texts = {"en": Sentences.of([["e1", "e2", "e1"]], "en"), "de": Sentences.of([["d1", "d2", "d3"]], "de")}
    score = Lexicon(dictionary, texts=texts).evaluate(Planted())[0]
    assert (score.value, score.n, score.settings["left_out"], score.settings["candidates"]) == (1.0, 2, 1, 3)
    with pytest.raises(
        SettingError, match="not one of its 3 entries is in the texts in en and de, so there is nothing to"
    ):
        Lexicon(dictionary, texts={"en": texts["de"], "de": texts["en"]}).evaluate(Planted())
    with pytest.raises(SettingError, match="texts in en, the dictionary needs en, de"):
        Lexicon(dictionary, texts={"en": texts["en"]})
    with pytest.raises(SettingError, match="similarity is csls or cosine"):
        Lexicon(dictionary, similarity="dot")


def test_a_dictionary_is_cut_by_its_source_words():
    dictionary = Dictionary(("a", "b", "a", "c"), ("1", "2", "3", "4"), ("en", "de"))
    assert by_frequency(dictionary, 0, 1).target == ("1", "3")
    assert by_frequency(dictionary, 1, None).source == ("b", "c")
