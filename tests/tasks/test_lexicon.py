"""Lexicon induction and word senses against the slowest possible program."""

import numpy as np
import pytest

from calque.anchors import anchors_of
from calque.annotated import Dictionary, SenseText
from calque.errors import SettingError
from calque.tasks.disambiguation import Disambiguation, first_senses
from calque.tasks.lexicon import Lexicon, by_frequency
from calque.text import Sentences
from calque.vectors import Embeddings
from planted import KeyPoints, Planted, words


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


def senses(instances):
    """Each instance a sentence of one word: (word, lemma, pos, keys)."""
    text = Sentences.of([[word] for word, *_ in instances], "en")
    numbers = np.arange(len(instances))
    return SenseText(
        text, numbers, np.zeros_like(numbers), tuple(i[1] for i in instances), tuple(i[2] for i in instances),
        tuple(f"i{k}" for k in numbers), tuple(tuple(i[3].split()) for i in instances),
    )  # fmt: skip


def test_a_word_takes_the_nearest_sense_of_its_lemma():
    train = senses([("e1", "bank", "NOUN", "bank%1"), ("e1", "bank", "NOUN", "bank%1"), ("e2", "bank", "NOUN", "bank%2"),
                    ("e3", "run", "VERB", "run%1")])  # fmt: skip
    test = senses([("e1", "Bank", "NOUN", "bank%1"), ("e2", "bank", "NOUN", "bank%2 bank%3"), ("e2", "bank", "NOUN", "bank%1"),
                   ("e1", "bank", "VERB", "bank%9"), ("e3", "run", "VERB", "run%1")])  # fmt: skip
    score = Disambiguation(train, {"t": test}).evaluate(Planted())[0]
    assert score.value == pytest.approx(2 * 3 / (4 + 5))  # the verb has no answer
    assert (score.n, score.settings["unseen_lemmas"], score.settings["answered"]) == (5, 1, 4)
    backed = Disambiguation(train, {"t": test}, first_sense={"bank%VERB": "bank%9"}).evaluate(Planted())[0]
    assert backed.value == pytest.approx(4 / 5)
    with pytest.raises(SettingError, match="its vectors are of key points, expected words"):
        Disambiguation(train, {"t": test}).evaluate(KeyPoints())
    free = Disambiguation(train, {"t": test}, restrict="none").evaluate(Planted())[0]
    assert free.value == pytest.approx(3 / 5)


class Long(Planted):
    """`e8` is `e1`, ten times as long, and a word with `?` has no vector."""

    def vector(self, word):
        if "?" in word:
            return np.zeros(self.dim)
        if word in ("e8", "e9"):
            return 10 * super().vector("e1") if word == "e8" else super().vector("e2") - super().vector("e1")
        return super().vector(word)

    def encode(self, sentences, **options):
        found = super().encode(sentences, **options)
        return Embeddings(found.data, found.offsets, found.data.any(axis=1))


@pytest.mark.parametrize("restrict", ["lemma", "none"])
def test_a_sense_is_the_mean_of_its_vectors_as_they_are(restrict):
    """Against a loop: means of raw vectors, then the cosine, or the Euclidean distance to all."""
    rng = np.random.default_rng(0)
    words, keys = ["e1", "e2", "e3", "e4", "e8", "e9"], ["bank%1", "bank%2", "bank%3"]
    train = senses([(words[rng.integers(6)], "bank", "NOUN", keys[rng.integers(3)]) for _ in range(30)])
    test = senses([(words[rng.integers(6)], "bank", "NOUN", keys[rng.integers(3)]) for _ in range(60)])
    encoder = Long()

    def vector(text, i):
        return encoder.vector(text.sentences[i].words[0]).astype(np.float32).astype(float)

    means = {
        key: np.mean([vector(train, i) for i in range(len(train)) if train.keys[i] == (key,)], axis=0) for key in keys
    }
    right = 0
    for i in range(len(test)):
        x = vector(test, i)
        if restrict == "lemma":
            best = max(keys, key=lambda key: x @ means[key] / np.linalg.norm(means[key]))
        else:
            best = min(keys, key=lambda key: np.linalg.norm(x - means[key]))
        right += best in test.keys[i]
    (score,) = Disambiguation(train, {"t": test}, restrict=restrict, bootstrap=0).evaluate(encoder)
    assert score.value == pytest.approx(right / len(test))


def test_words_without_a_vector_take_the_first_sense_or_are_wrong():
    train = senses([("e1", "bank", "NOUN", "bank%1"), ("?", "bank", "NOUN", "bank%1"), ("e2", "bank", "NOUN", "bank%2"),
                    ("?", "bank", "NOUN", "bank%3"), ("?", "run", "VERB", "run%1")])  # fmt: skip
    test = senses([("e1", "bank", "NOUN", "bank%1"), ("?", "bank", "NOUN", "bank%1"), ("?", "bank", "NOUN", "bank%2"),
                   ("e3", "run", "VERB", "run%1")])  # fmt: skip
    (score,) = Disambiguation(train, {"t": test}, bootstrap=0).evaluate(Long())
    counts = {
        name: score.settings[name]
        for name in ("words_without_vector", "training_words_without_vector", "senses_without_vector")
    }
    assert counts == {"words_without_vector": 2, "training_words_without_vector": 3, "senses_without_vector": 2}
    assert (score.n, score.settings["answered"]) == (4, 1)  # the verb's only sense has no vector
    assert score.value == pytest.approx(2 * 1 / (1 + 4))
    first = {"bank%NOUN": "bank%1", "run%VERB": "run%1"}
    (backed,) = Disambiguation(train, {"t": test}, first_sense=first, bootstrap=0).evaluate(Long())
    assert backed.value == pytest.approx(3 / 4)
    blind = senses([("?", "bank", "NOUN", "bank%1")])
    with pytest.raises(SettingError, match="planted has no vector for any annotated word"):
        Disambiguation(blind, {"t": test}).evaluate(Long())


def test_a_text_without_senses_has_nothing_to_measure():
    text, nothing = senses([("e1", "bank", "NOUN", "bank%1")]), senses([])
    with pytest.raises(SettingError, match="t: not one word is annotated with a sense, so there is nothing to measure"):
        Disambiguation(text, {"t": nothing})
    with pytest.raises(SettingError, match="train: not one word .* nothing to learn"):
        Disambiguation(nothing, {"t": text})
    with pytest.raises(SettingError, match="no text to test on"):
        Disambiguation(text, {})


def test_senses_need_a_key_file():
    text = senses([("e1", "bank", "NOUN", "x")])
    bare = SenseText(text.sentences, text.sentence, text.word, text.lemmas, text.pos, text.ids, ())
    with pytest.raises(SettingError, match="no key file"):
        Disambiguation(text, {"t": bare})


def test_first_senses_of_wordnet(tmp_path):
    path = tmp_path / "index.sense"
    path.write_text("bank%1:14:00:: 08420278 1 20\nbank%1:17:01:: 09213565 2 10\nrun%2:38:00:: 01926311 1 5\n")
    assert first_senses(str(path)) == {"bank%NOUN": "bank%1:14:00::", "run%VERB": "run%2:38:00::"}
