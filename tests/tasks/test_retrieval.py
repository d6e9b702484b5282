"""Compare word retrieval with a naive implementation of the definition of Cao et al. (2020)."""

import itertools
import json

import numpy as np
import pytest

from calque.errors import CalqueError, SettingError
from calque.pairs import WordPairs
from calque.tasks import WordRetrieval, retrieve
from calque.tasks.overlap import first_occurrences, identical_words, seen_pairs, shared_sentences
from calque.tasks.retrieval import with_special_tokens
from calque.text import ParallelCorpus, Sentences
from calque.vectors import Embeddings
from planted import Fixed


def toy(seed, n_sentences=12, dim=5, noise=0.8, vocabulary=9):
    """Return sentences of random words in two languages, random one-to-one links, and vectors that
    partly match.
    """
    rng = np.random.default_rng(seed)
    source, target, links, x, y = [], [], [], [], []
    for number in range(n_sentences):
        n, m = rng.integers(0 if number == 5 else 1, 7, 2)
        source.append([f"{'aA'[rng.integers(2)]}{rng.integers(vocabulary)}" for _ in range(n)])
        target.append([f"{'ab'[rng.integers(2)]}{rng.integers(vocabulary)}" for _ in range(m)])
        left, right = rng.standard_normal((n, dim)), rng.standard_normal((m, dim))
        for i, j in zip(rng.permutation(n), rng.permutation(m), strict=False):
            if rng.random() < 0.8:
                links.append((number, i, j))
                right[j] = left[i] + noise * rng.standard_normal(dim)
        x.append(left)
        y.append(right)
    corpus = ParallelCorpus.of(source, target, ("en", "de"))
    pairs = WordPairs(
        *(np.array(column) for column in zip(*links, strict=True)), n_sentences=n_sentences
    )
    return corpus, pairs, *(embeddings(side, rng) for side in (x, y))


def embeddings(sentences, rng, missing=0.1):
    data = np.concatenate(sentences).astype(np.float32)
    covered = rng.random(len(data)) > missing
    data[~covered] = 0
    return Embeddings(data, np.cumsum([0, *(len(sentence) for sentence in sentences)]), covered)


def literal(
    corpus, pairs, train, train_pairs, source, target, *, contextual, candidates, similarity, k
):
    """Return the hits in both directions and the number of queries, for unseen and all links, by
    token and by type.
    """

    def words(sentences):
        return [(s, i) for s, sentence in enumerate(sentences) for i in range(len(sentence))]

    def first(sentences):
        kept, forms = set(), set()
        for s, sentence in enumerate(sentences):
            for i, word in enumerate(sentence.words):
                if word not in forms:
                    kept.add((s, i))
                forms.add(word)
        return kept

    def vector(side, word):
        return side.data[side.offsets[word[0]] + word[1]].astype(float)

    def has_vector(side, word):
        return side.covered is None or side.covered[side.offsets[word[0]] + word[1]]

    def cosine(a, b):
        return float(a @ b / (np.sqrt(a @ a) * np.sqrt(b @ b)))

    exist_x = words(corpus.source) if contextual else sorted(first(corpus.source))
    exist_y = words(corpus.target) if contextual else sorted(first(corpus.target))
    pool_x = [word for word in exist_x if has_vector(source, word)]
    pool_y = [word for word in exist_y if has_vector(target, word)]
    links = [
        ((s, i), (s, j))
        for s, i, j in zip(
            pairs.sentence.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True
        )
        if (s, i) in pool_x and (s, j) in pool_y
    ]
    if candidates == "linked":
        pool_x = [word for word in pool_x if word in {x for x, _ in links}]
        pool_y = [word for word in pool_y if word in {y for _, y in links}]
    cos = {
        (x, y): cosine(vector(source, x), vector(target, y))
        for x, y in itertools.product(pool_x, pool_y)
    }
    r_x = {x: np.mean(sorted((cos[x, y] for y in pool_y), reverse=True)[:k]) for x in pool_x}
    r_y = {y: np.mean(sorted((cos[x, y] for x in pool_x), reverse=True)[:k]) for y in pool_y}
    if similarity == "cosine":
        r_x, r_y = dict.fromkeys(r_x, 0.0), dict.fromkeys(r_y, 0.0)
    score = {(x, y): 2 * cos[x, y] - r_x[x] - r_y[y] for x, y in cos}
    trained = {
        (train.source[s].words[i].lower(), train.target[s].words[j].lower())
        for s, i, j in zip(
            train_pairs.sentence, train_pairs.source, train_pairs.target, strict=True
        )
    }
    result = {
        f"{kind}.{name}": [0, 0, 0] for kind in ("accuracy", "form") for name in ("unseen", "all")
    }

    def form(sentences, word):
        return sentences[word[0]].words[word[1]].lower()

    for x, y in links:
        forms = form(corpus.source, x), form(corpus.target, y)
        found_y = max(pool_y, key=lambda other: score[x, other])
        found_x = max(pool_x, key=lambda other: score[other, y])
        counts = {
            "accuracy": (found_y == y, found_x == x, 1),
            "form": (
                form(corpus.target, found_y) == forms[1],
                form(corpus.source, found_x) == forms[0],
                1,
            ),
        }
        for name in ["all"] if forms in trained or forms[0] == forms[1] else ["all", "unseen"]:
            for kind, of_kind in counts.items():
                for place, count in enumerate(of_kind):
                    result[f"{kind}.{name}"][place] += count
    return result


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("contextual", [True, False])
@pytest.mark.parametrize("candidates", ["all", "linked"])
@pytest.mark.parametrize(("similarity", "k"), [("csls", 10), ("csls", 2), ("cosine", 10)])
def test_accuracy_equals_its_definition(seed, contextual, candidates, similarity, k):
    corpus, pairs, source, target = toy(seed)
    train, train_pairs, _, _ = toy(seed + 100)
    options = {"contextual": contextual, "candidates": candidates, "similarity": similarity, "k": k}
    task = WordRetrieval(
        corpus, pairs, train=train, train_pairs=train_pairs, bootstrap=20, **options
    )
    scores = {score.metric: score for score in task.evaluate(Fixed(en=source, de=target))}
    expected = literal(corpus, pairs, train, train_pairs, source, target, **options)
    assert list(scores) == [
        f"{kind}.{name}{direction}"
        for kind in ("accuracy", "form")
        for name in ("unseen", "all")
        for direction in ("", ".en-de", ".de-en")
    ]
    for name, (forward, backward, n) in expected.items():
        assert n > 0
        score = scores[name]
        assert score.n == n
        assert score.value == pytest.approx((forward + backward) / (2 * n), abs=1e-12)
        assert scores[f"{name}.en-de"].value == pytest.approx(forward / n, abs=1e-12)
        assert scores[f"{name}.de-en"].value == pytest.approx(backward / n, abs=1e-12)
        assert score.settings["directions"] == pytest.approx(
            {"en-de": forward / n, "de-en": backward / n}
        )
        assert score.low <= score.value <= score.high
        assert scores[name.replace("accuracy", "form")].value >= score.value


def test_words_without_a_vector_are_dropped_and_counted():
    data = np.eye(4, dtype=np.float32)
    covered = np.array([True, True, True, False])
    source = Embeddings(data * covered[:, None], np.array([0, 2, 4]), covered)
    target = Embeddings(data, np.array([0, 2, 4]))
    pairs = WordPairs([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 0, 1], n_sentences=2)
    found = retrieve(source, target, pairs, k=1)
    assert (found.dropped, found.source_pool.sum(), found.target_pool.sum()) == (1, 3, 4)
    assert found.queries.tolist() == [0, 1, 2]
    assert found.source_hits.tolist() == found.target_hits.tolist() == [True] * 3
    task = WordRetrieval(
        ParallelCorpus.of([["a", "b"], ["c", "d"]], [["e", "f"], ["g", "h"]], ("en", "de")), pairs
    )
    settings = task.evaluate(Fixed(en=source, de=target))[0].settings
    assert settings["links_without_vector"] == settings["source_words_without_vector"] == 1
    assert settings["target_words_without_vector"] == 0


def test_links_that_share_a_word_are_dropped():
    corpus = ParallelCorpus.of([["a", "b", "x"]], [["c", "d", "y"]], ("en", "de"))
    eye = Embeddings(np.eye(3, dtype=np.float32), np.array([0, 3]))
    many = WordPairs([0, 0, 0], [0, 1, 2], [0, 0, 1], n_sentences=1)
    with pytest.raises(SettingError, match="one-to-one"):
        retrieve(eye, eye, many)
    task = WordRetrieval(corpus, many, bootstrap=0)
    score = task.evaluate(Fixed(en=eye, de=eye))[0]
    assert (score.n, score.settings["links_not_one_to_one"]) == (1, 2)


def test_a_link_that_is_listed_twice_counts_once():
    corpus = ParallelCorpus.of([["a", "b"]], [["c", "d"]], ("en", "de"))
    eye = Embeddings(np.eye(2, dtype=np.float32), np.array([0, 2]))
    once, twice = (
        WordPairs.of([[(0, 0), (1, 1)]]),
        WordPairs([0, 0, 0], [0, 0, 1], [0, 0, 1], n_sentences=1),
    )
    scores = [
        WordRetrieval(corpus, pairs, bootstrap=0).evaluate(Fixed(en=eye, de=eye))
        for pairs in (once, twice)
    ]
    assert scores[0] == scores[1]
    assert (scores[1][0].n, scores[1][0].settings["links_not_one_to_one"]) == (2, 0)


def test_texts_without_unseen_pairs_have_no_score_and_texts_without_links_are_rejected():
    corpus = ParallelCorpus.of([["a"]], [["b"]], ("en", "de"))
    one = Embeddings(np.ones((1, 2), np.float32), np.array([0, 1]))
    pairs = WordPairs([0], [0], [0], n_sentences=1)
    scores = WordRetrieval(corpus, pairs, train=corpus, train_pairs=pairs).evaluate(
        Fixed(en=one, de=one)
    )
    assert scores[0].metric == "accuracy.unseen"
    assert scores[0].n == 0
    assert json.loads(scores[0].to_json())["value"] is None
    assert scores[3].value == 1.0
    assert (
        scores[0].settings["seen_in_training"]
        == scores[0].settings["test_sentences_in_training"]
        == 1
    )
    corpus.path = "test.tsv"
    with pytest.raises(
        SettingError,
        match=r"test\.tsv: no word links in 1 sentence pairs, so there is nothing to measure",
    ):
        WordRetrieval(corpus, WordPairs([], [], [], n_sentences=1)).evaluate(Fixed(en=one, de=one))
    blind = Embeddings(np.zeros((1, 2), np.float32), np.array([0, 1]), np.array([False]))
    with pytest.raises(
        SettingError, match=r"test\.tsv: none of its 1 word links connects two words with vectors"
    ):
        WordRetrieval(corpus, pairs).evaluate(Fixed(en=one, de=blind))


def test_links_do_not_depend_on_the_training_text(monkeypatch):
    """Test links come from the test text alone; seen pairs come from both texts."""
    import calque.wordalign

    corpus = ParallelCorpus.of([["a", "b"]], [["c", "d"]], ("en", "de"))
    train = ParallelCorpus.of([["A"], ["b"]], [["C"], ["x"]], ("en", "de"))
    asked = []

    def align_words(text, **options):
        asked.append((len(text), options))
        if len(text) == 1:
            return WordPairs([0, 0], [0, 1], [0, 1], n_sentences=1)
        return WordPairs([0, 1, 2], [0, 0, 0], [1, 0, 0], n_sentences=3)

    monkeypatch.setattr(calque.wordalign, "align_words", align_words, raising=False)
    task = WordRetrieval(corpus, train=train, model="hmm", seed=3)
    eye = Embeddings(np.eye(2, dtype=np.float32), np.array([0, 2]))
    scores = task.evaluate(Fixed(en=eye, de=eye))
    options = {"model": "hmm", "symmetrize": "one-to-one", "seed": 3}
    assert asked == [(1, options), (3, options)]
    assert [score.n for score in scores] == [
        1,
        1,
        1,
        2,
        2,
        2,
    ] * 2  # a-c is linked in the training text, b-d is not
    assert WordRetrieval(corpus, model="hmm", seed=3).links[0] == task.links[0]
    assert scores[0].settings["links"] == "hmm, from the test text"
    assert list(task.news(scores)) == [
        ": word links from the statistical aligner (hmm, from the test text)"
    ]
    assert scores[0].settings["symmetrize"] == "one-to-one"


def test_special_tokens_add_two_links_to_each_sentence(tiny_encoder):
    corpus = ParallelCorpus.of([["a", "b"], ["c"]], [["a", "d"], ["b"]], ("en", "de"))
    pairs = WordPairs([0, 1], [1, 0], [1, 0], n_sentences=2)
    plain, special = (
        WordRetrieval(corpus, pairs, special=flag, bootstrap=0, train=corpus, train_pairs=pairs)
        for flag in (False, True)
    )
    assert [score.n for score in plain.evaluate(tiny_encoder)] == [0, 0, 0, 2, 2, 2] * 2
    assert [score.n for score in special.evaluate(tiny_encoder)] == [0, 0, 0, 6, 6, 6] * 2
    ends, words = (
        with_special_tokens(tiny_encoder, corpus.source),
        tiny_encoder.encode(corpus.source),
    )
    assert np.diff(ends.offsets).tolist() == [4, 3]
    np.testing.assert_allclose(ends.data[[1, 2, 5]], words.data, atol=1e-5)
    assert np.abs(ends.data[[0, 3, 4, 6]]).max(axis=1).min() > 0
    # The [CLS] vectors match; the second source [SEP] is nearest to the first target [SEP].
    source = Embeddings(np.eye(7, dtype=np.float32)[[0, 1, 2, 3, 4, 5, 3]], np.array([0, 4, 7]))
    target = Embeddings(np.eye(7, dtype=np.float32)[[0, 1, 2, 3, 4, 5, 6]], np.array([0, 4, 7]))
    assert special.retrieve(source, target).target_lists[:, 0].tolist() == [2, 0, 3, 5, 4, 3]
    by_form = {score.metric: score.value for score in special.evaluate_embeddings(source, target)}
    assert by_form["accuracy.all.en-de"] == 5 / 6
    assert by_form["form.all.en-de"] == 1  # any [SEP] is the same word type
    with pytest.raises(SettingError, match="requires an encoder with special tokens"):
        special.evaluate(Fixed())


def test_seen_pairs_identical_words_and_shared_sentences_are_found_in_any_case():
    corpus = ParallelCorpus.of(
        [["The", "house"], ["Paris", "IŞIK"], []],
        [["Das", "Haus"], ["paris", "ışık"], ["x"]],
        ("en", "de"),
    )
    pairs = WordPairs([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 0, 1], n_sentences=3)
    train = ParallelCorpus.of(
        [["the", "HOUSE"], [], ["a"]], [["das", "haus", "Haus"], [], ["b"]], ("en", "de")
    )
    train_pairs = WordPairs([0, 0, 2], [0, 1, 0], [1, 2, 0], n_sentences=3)
    assert seen_pairs(corpus, pairs, train, train_pairs).tolist() == [False, True, False, False]
    assert identical_words(corpus, pairs).tolist() == [
        False,
        False,
        True,
        "IŞIK".lower() == "ışık".lower(),
    ]
    assert shared_sentences(corpus, train).tolist() == [True, False, False]
    assert first_occurrences(corpus.source).tolist() == [True] * 4
    repeated = Sentences.of([["a", "A", "a"], [], ["b", "A"]])
    assert first_occurrences(repeated).tolist() == [True, True, False, True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": "some"}, "candidates must be one of all, linked, got 'some'"),
        (
            {"train_pairs": WordPairs([], [], [], n_sentences=1)},
            "set train to the text of these word links",
        ),
        ({"train": ParallelCorpus.of([], [], ("en", "fr"))}, "train must be in the languages"),
        ({"pairs": WordPairs([0], [0], [5], n_sentences=1)}, "target word 5"),
    ],
)
def test_errors_name_the_invalid_argument(options, message):
    corpus = ParallelCorpus.of([["a"]], [["b"]], ("en", "de"))
    one = Embeddings(np.ones((1, 2), np.float32), np.array([0, 1]))
    options = {"pairs": WordPairs([0], [0], [0], n_sentences=1), **options}
    with pytest.raises(CalqueError, match=message):
        WordRetrieval(corpus, **options).evaluate(Fixed(en=one, de=one))
    two = Embeddings(np.ones((2, 2), np.float32), np.array([0, 2]))
    with pytest.raises(SettingError, match="2 target vectors"):
        WordRetrieval(corpus, WordPairs([0], [0], [0], n_sentences=1)).evaluate_embeddings(one, two)
