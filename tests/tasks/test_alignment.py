"""Compare alignment error rate, precision, recall and F1 with their definitions, computed on Python sets."""

import numpy as np
import pytest

from calque.errors import CalqueError
from calque.pairs import WordPairs
from calque.tasks import WordAlignment, score_links
from calque.text import ParallelCorpus
from calque.vectors import Embeddings
from planted import Fixed


def random_links(seed, n_sentences=25, possible=False):
    rng = np.random.default_rng(seed)
    cells = np.flatnonzero(rng.random(n_sentences * 36) < 0.2)
    sentence, cell = np.divmod(cells, 36)
    flags = rng.random(len(cells)) < 0.4 if possible else None
    return WordPairs(sentence, cell // 6, cell % 6, n_sentences=n_sentences, possible=flags)


def literal(links, gold):
    """Compute the scores of Och and Ney (2003) on sets of (sentence, source, target)."""

    def triples(pairs):
        return set(zip(pairs.sentence.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True))

    a, s, p = triples(links), triples(gold.sure), triples(gold)
    precision, recall = len(a & p) / len(a), len(a & s) / len(s)
    f1 = 2 * precision * recall / (precision + recall)
    return [1 - (len(a & s) + len(a & p)) / (len(a) + len(s)), precision, recall, f1]


@pytest.mark.parametrize("seed", range(5))
def test_scores_equal_their_definitions(seed):
    links, gold = random_links(seed), random_links(seed + 50, possible=True)
    scores = score_links(links, gold, data="x", languages=("en", "de"), bootstrap=200)
    assert [score.metric for score in scores] == ["aer", "precision", "recall", "f1"]
    assert [score.value for score in scores] == pytest.approx(literal(links, gold), abs=1e-12)
    assert all(score.low < score.value < score.high for score in scores)
    assert scores[0].settings["sure"] + scores[0].settings["possible"] == len(gold)


def test_duplicate_links_count_once_and_are_sure_if_any_copy_is_sure():
    once = WordPairs.parse(["0-0 1-1"])
    twice = WordPairs([0, 0, 0], [0, 0, 1], [0, 0, 1], n_sentences=1)
    gold = WordPairs([0, 0, 0], [0, 0, 1], [0, 0, 1], n_sentences=1, possible=np.array([True, False, False]))
    for score in (*score_links(twice, once), *score_links(once, gold)):
        assert score.value == (0.0 if score.metric == "aer" else 1.0)
        assert score.settings["sure"] == score.settings["links"] == 2


def test_without_predicted_links_recall_is_zero_and_precision_is_undefined():
    aer, precision, recall, f1 = score_links(WordPairs.parse([""]), WordPairs.parse(["0-0"]))
    assert (aer.value, recall.value, f1.value) == (1.0, 0.0, 0.0)
    assert precision.to_dict()["value"] is None


def test_predicted_links_in_a_sentence_without_gold_links_are_wrong():
    perfect = score_links(WordPairs.parse(["0-0", ""]), WordPairs.parse(["0-0", ""]), bootstrap=300)
    assert all(score.low == score.high == score.value for score in perfect)  # also in resamples without any gold link
    extra = score_links(WordPairs.parse(["0-0", "0-0"]), WordPairs.parse(["0-0", ""]))
    assert extra[1].value == 0.5


@pytest.mark.parametrize("method", ["mutual", "softmax"])
def test_links_are_predicted_from_the_vectors_of_an_encoder(method):
    corpus = ParallelCorpus.of([["a", "b", "c"]], [["x", "y", "z"]], ("en", "de"))
    task = WordAlignment(corpus, WordPairs.parse(["0-1 1-0 2-2"]), method=method, data="toy")
    eye, offsets = np.eye(3, dtype=np.float32), np.array([0, 3])
    scores = task.evaluate(Fixed(en=Embeddings(eye, offsets), de=Embeddings(eye[[1, 0, 2]], offsets)))
    assert [score.value for score in scores] == [0.0, 1.0, 1.0, 1.0]
    assert scores[0].settings["links_from"] == method
    assert scores[0].languages == ("en", "de")
    assert [score.value for score in task.score(WordPairs.parse(["0-0"]))] == [1.0, 0.0, 0.0, 0.0]


def test_gold_links_to_missing_words_raise_an_error():
    corpus = ParallelCorpus.of([["a"]], [["b"]], ("en", "de"))
    with pytest.raises(CalqueError, match="target word 3"):
        WordAlignment(corpus, WordPairs.parse(["0-3"]))
