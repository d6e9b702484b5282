"""Compare lexicon induction with a double loop over words."""

import numpy as np
import pytest

from calque.annotated import Dictionary
from calque.errors import SettingError
from calque.tasks.lexicon import Lexicon, by_frequency
from calque.text import Sentences
from planted import Planted


class Noisy(Planted):
    """Encoder that adds noise to the vectors of German words."""

    def vector(self, word):
        noise = np.random.default_rng(int(word[1:])).standard_normal(self.dim)
        return super().vector(word) + (1.2 * noise if word[0] == "d" else 0)


@pytest.mark.parametrize("similarity", ["csls", "cosine"])
def test_ranks_equal_those_of_a_double_loop(similarity):
    source = (*tuple(f"e{k}" for k in range(40)), "e3", "e5")
    target = (*tuple(f"d{k}" for k in range(40)), "d30", "d6")
    dictionary = Dictionary(source, target, ("en", "de"))
    texts = {lang: Sentences.of([[f"{lang[0]}{k}"] for k in range(n)], lang) for lang, n in (("en", 40), ("de", 60))}
    task = Lexicon(dictionary, texts=texts, similarity=similarity, k=5, bootstrap=0)
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


def test_words_without_a_vector_are_skipped_and_counted():
    dictionary = Dictionary(("e1", "e2", "e99"), ("d1", "d2", "d1"), ("en", "de"))
    texts = {"en": Sentences.of([["e1", "e2", "e1"]], "en"), "de": Sentences.of([["d1", "d2", "d3"]], "de")}
    score = Lexicon(dictionary, texts=texts).evaluate(Planted())[0]
    assert (score.value, score.n, score.settings["left_out"], score.settings["candidates"]) == (1.0, 2, 1, 3)
    with pytest.raises(
        SettingError, match="none of its 3 entries is in the texts in en and de, so there is nothing to"
    ):
        Lexicon(dictionary, texts={"en": texts["de"], "de": texts["en"]}).evaluate(Planted())
    with pytest.raises(SettingError, match="texts must be in en, de, got en"):
        Lexicon(dictionary, texts={"en": texts["en"]})
    with pytest.raises(SettingError, match="similarity must be csls or cosine"):
        Lexicon(dictionary, similarity="dot")


def test_entries_of_a_dictionary_are_selected_by_the_rank_of_their_source_word():
    dictionary = Dictionary(("a", "b", "a", "c"), ("1", "2", "3", "4"), ("en", "de"))
    assert by_frequency(dictionary, 0, 1).target == ("1", "3")
    assert by_frequency(dictionary, 1, None).source == ("b", "c")
