"""Orders learnt from planted rules, and BLEU against a count of n-grams one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.clcr.extracting import linked_words
from calque.clcr.heads import HeadTraining
from calque.clcr.learning import order_examples
from calque.clcr.reordering import STATISTICS, LinkedOrder, Reordering, bleu, ngram_counts, score_order
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.tasks.bootstrap import measure
from calque.text import Sentences
from calque.vectors import Embeddings

TRAINING = HeadTraining(epochs=8, learning_rate=1e-2, batch=16)
SETTINGS = {"hidden": 64, "dropout": 0.0, "training": TRAINING}
NOUN, ADJECTIVE, VERB, FUNCTION = range(4)


def planted(n, seed):
    """Sentences of three to six phrases; the other language has verbs last and adjectives after their nouns.

    Function words, such as those before nouns, have no partner. The class of a word is in its vector, with noise.
    """
    rng = np.random.default_rng(seed)
    kinds = [(VERB,), (NOUN,), (ADJECTIVE, NOUN), (FUNCTION, NOUN), (FUNCTION, ADJECTIVE, NOUN)]
    vectors = 2.0 * np.eye(4, 8)
    data, lengths, links = [], [], []
    for _ in range(n):
        words = [kind for k in rng.integers(len(kinds), size=rng.integers(3, 7)) for kind in kinds[k]]
        order = list(range(len(words)))
        for k in range(len(words) - 1):
            if words[k] == ADJECTIVE:
                order[k], order[k + 1] = order[k + 1], order[k]
        order = sorted(order, key=lambda word: words[word] == VERB)
        order = [word for word in order if words[word] != FUNCTION]
        links.append([(word, place) for place, word in enumerate(order)])
        lengths.append(len(words))
        data.append(vectors[words] + 0.3 * rng.standard_normal((len(words), 8)))
    return Embeddings(np.concatenate(data).astype(np.float32), offsets_of(lengths)), WordPairs.of(links)


def test_a_planted_order_is_learnt_from_pairs_better_than_from_places():
    train, unseen = planted(400, 0), planted(100, 1)
    figures, heads = {}, {}
    for kind in ("relative", "absolute"):
        trained = Reordering(kind=kind, **SETTINGS).train(*train)
        scores = score_order(trained.head, *unseen)
        heads[kind] = trained.head
        figures[kind] = {
            name: {metric: statistic(counts.sum(axis=0)) for metric, statistic in STATISTICS.items()}
            for name, counts in scores.items()
        }
    assert figures["relative"]["n = 10"]["bleu-4"] >= 0.95
    assert figures["relative"]["n = 1"]["bleu-4"] >= 0.9
    assert figures["absolute"]["n = 10"]["bleu-4"] < figures["relative"]["n = 10"]["bleu-4"] - 0.1
    assert figures["absolute"]["n = 10"]["bleu-2"] > figures["absolute"]["as it stands"]["bleu-2"]  # it learns, too
    assert figures["relative"]["as it stands"]["bleu-2"] < 0.7
    measured = measure(scores["n = 10"], STATISTICS["bleu-4"])
    assert measured.value == figures["absolute"]["n = 10"]["bleu-4"]
    assert measured.low < measured.value < measured.high
    sentences = Sentences.of([[f"w{k}" for k in range(n)] for n in np.diff(unseen[0].offsets)], "aa")
    examples = order_examples("aa", sentences, *unseen, heads)
    assert len(examples) == 5
    for example in examples:
        words, ranks, n = example["words"], np.array(example["ranks"]), len(example["words"])
        links = unseen[1].slice(example["sentence"], example["sentence"] + 1)
        assert words == [f"w{k}" for k in sorted(links.source.tolist())]
        assert ranks.tolist() == links.target[np.argsort(links.source)].tolist()
        before, places = np.array(example["before"]), np.array(example["places"])
        assert before + before.T == pytest.approx(np.ones((n, n)), abs=2e-3)
        assert ((before > 0.5) == (ranks[:, None] < ranks))[~np.eye(n, dtype=bool)].mean() > 0.9
        assert places.shape == (n, n)
        assert (places.sum(axis=1) <= 1 + 1e-2).all()


def literal_counts(order, gold):
    """n-grams of one sequence of symbols found in another, for n = 1 to 4, and n-grams."""
    grams = [[seq[k : k + n] for k in range(len(seq) - n + 1)] for n in range(1, 5) for seq in (order, gold)]
    return [sum(g in right for g in mine) for mine, right in zip(grams[::2], grams[1::2], strict=True)] + [
        len(mine) for mine in grams[::2]
    ]


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 8), max_size=5), seed=st.integers(0, 10**6))
def test_bleu_counts_are_those_of_n_grams_one_by_one(lengths, seed):
    rng = np.random.default_rng(seed)
    orders, ranks, expected = [], [], []
    for n in lengths:
        gold = list(range(n))
        found = list(range(n))
        for _ in range(2):  # disturbed a little, so that n-grams remain
            for seq in (gold, found):
                a, b = sorted(rng.integers(0, n + 1, 2))
                seq[a:b] = seq[a:b][::-1]
        orders += found
        ranks += np.argsort(gold).tolist()
        expected.append(literal_counts(found, gold))
    counts = ngram_counts(np.array(orders, dtype=int), np.array(ranks, dtype=int), np.array(lengths, dtype=int))
    assert counts.tolist() == expected
    if lengths and max(lengths) >= 3:
        right, all_ = np.array(expected).sum(axis=0).reshape(2, 4)
        assert bleu(3)(counts.sum(axis=0)) == pytest.approx(right[2] / all_[2])


def test_gold_orders_leave_out_what_says_nothing_and_count_it():
    covered = np.array([True, True, False, True, True, True, True, True])
    embeddings = Embeddings(np.zeros((8, 2), dtype=np.float32), np.array([0, 4, 4, 6, 8]), covered)
    pairs = WordPairs.of([[(3, 0), (0, 5), (2, 1), (1, 9)], [], [(0, 0), (1, 0)], [(1, 2)]])
    gold = LinkedOrder.of(embeddings, pairs)
    assert gold.lengths.tolist() == [3, 0, 0, 0]
    assert gold.positions.tolist() == [0, 1, 3]
    assert gold.ranks.tolist() == [1, 2, 0]
    assert np.flatnonzero(gold.chosen).tolist() == [0, 1, 3]
    assert gold.skipped == {
        "links_not_one_to_one": 2, "links_without_vector": 1, "sentences_with_fewer_than_2_key_points": 3
    }  # fmt: skip
    assert np.flatnonzero(linked_words(embeddings, pairs)).tolist() == [0, 1, 3, 4, 5, 7]
    with pytest.raises(SettingError, match="no order can be learnt from"):
        Reordering().train(embeddings, WordPairs.of([[], [], [(0, 0)], []]))
