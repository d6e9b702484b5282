"""Compare validation on held-out pairs with naive implementations, and test its decisions."""

import math
import warnings

import numpy as np
import pytest
import torch

from calque.alignment.base import Run
from calque.alignment.contrastive import Contrastive
from calque.alignment.data import LinkedText, training_data
from calque.alignment.finetune import FineTune
from calque.alignment.update import Alignment
from calque.alignment.validation import (
    HeldOutText,
    Hits,
    UnchangedWarning,
    accuracies,
    gain,
    hits,
    hold_out,
    n_held_out,
    sentence_gain,
)
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.vectors import Embeddings
from linked_text import make_text

TUNER = {"towards": "en", "batch": 8, "epochs": 2}


# -- division --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sizes", "share", "expected"),
    [
        ([1000], 0.05, [64]),  # 50 are too few
        ([4000], 0.05, [200]),
        ([50_000], 0.05, [256]),
        ([500, 500, 500, 500], 0.05, [25] * 4),
        ([125, 125], 0.05, [25, 25]),  # a fifth of each, fewer than 64 in total
        ([40], 0.05, [8]),
        ([37], 0.05, [0]),  # a fifth is 7 pairs
        ([30, 10, 0], 0.05, [6, 2, 0]),
        ([1000], 0.5, [256]),
        ([1000, 300], 0.0, [0, 0]),
        ([], 0.05, []),
        ([1], 0.05, [0]),
    ],
)
def test_numbers_of_held_out_pairs(sizes, share, expected):
    assert n_held_out(sizes, share) == expected


def linked_words(corpus, pairs):
    """Return the lower-cased words of each link, grouped by sentence."""
    found = [[] for _ in range(len(corpus))]
    for s, i, j in zip(pairs.sentence, pairs.source, pairs.target, strict=True):
        a, b = corpus[int(s)]
        found[s].append((a.words[i].lower(), b.words[j].lower()))
    return found


def text_of_numbers(n, words):
    """Return a text in which some words are identical, some pairs rare, and one sentence empty."""
    rng = np.random.default_rng(1)
    drawn = rng.zipf(1.3, (n, 5)) % words
    source = [[f"e{k}" for k in row] for row in drawn]
    target = [[f"e{k}" if k % 7 == 0 else f"D{k}" for k in row] for row in drawn]
    source[3], target[3] = [], []
    links = [[(k, k) for k in range(len(row))] for row in source]
    return ParallelCorpus.of(source, target, ("en", "de")), WordPairs.of(links)


def test_sentences_that_are_too_long_are_not_held_out():
    data = training_data(*text_of_numbers(90, 200))
    assert hold_out(data, 0.1, max_words=4) == (data, [])


def test_division_equals_a_literal_one():
    corpus, pairs = text_of_numbers(90, 200)
    training, (held_out,) = hold_out(training_data(corpus, pairs), 0.1)
    expected = linked_words(corpus, pairs)
    usable = [k for k in range(90) if expected[k]]
    chosen = [usable[(2 * k + 1) * 89 // 36] for k in range(18)]  # a fifth of 89
    others = [k for k in range(90) if k not in chosen]
    assert linked_words(held_out.corpus, held_out.pairs) == [expected[k] for k in chosen]
    left = linked_words(corpus, training.pairs[0])
    assert left == [[] if k in chosen else expected[k] for k in range(90)]
    assert np.diff(chosen).max() - np.diff(chosen).min() <= 2
    seen = {pair for k in others for pair in expected[k]}
    tested = [a != b and (a, b) not in seen for k in chosen for a, b in expected[k]]
    assert 0 < sum(tested) < len(tested)
    assert held_out.tested.tolist() == tested


def test_all_links_are_tested_if_training_has_seen_all():
    corpus, pairs = make_text("xx", 60, 0)  # translations differ only in case
    _, (held_out,) = hold_out(training_data(corpus, pairs), 0.05)
    assert len(held_out.corpus) == 12
    assert held_out.tested.all()


def test_nothing_is_held_out_if_the_share_is_0():
    data = training_data(*make_text("xx", 60, 0))
    assert hold_out(data, 0) == (data, [])


# -- accuracy --------------------------------------------------------------------------------------
def literal_neighbours(x, y, k=10):
    """Return the nearest y of each x by CSLS, in loops."""

    def unit(v):
        return v / max(np.linalg.norm(v), 1e-12)

    cosine = np.array([[unit(a) @ unit(b) for b in y] for a in x])
    r_x = [np.sort(row)[-k:].mean() for row in cosine]
    r_y = [np.sort(column)[-k:].mean() for column in cosine.T]
    found = []
    for i in range(len(x)):
        scores = [2 * cosine[i, j] - r_x[i] - r_y[j] for j in range(len(y))]
        found.append(int(np.argmax(scores)))
    return found


def test_hits_equal_a_literal_count():
    corpus, pairs = text_of_numbers(14, 60)
    tested = np.random.default_rng(2).random(len(pairs)) < 0.6
    text = HeldOutText(corpus, pairs, tested)
    rng = np.random.default_rng(3)
    sides = []
    for side in (corpus.source, corpus.target):
        offsets = np.concatenate([[0], np.cumsum(side.lengths())])
        sides.append(Embeddings(np.zeros((offsets[-1], 6), np.float32), offsets))
    shared = rng.normal(size=(sides[0].n_words, 6))
    for vectors in sides:  # translations are similar, because all links are i-i
        vectors.data[:] = shared + 0.7 * rng.normal(size=shared.shape)
    x, y = sides
    found = hits(x, y, text)
    forward, backward = literal_neighbours(x.data, y.data), literal_neighbours(y.data, x.data)
    words, links = np.zeros(14), np.zeros(14)
    for n, (s, i, j) in enumerate(zip(pairs.sentence, pairs.source, pairs.target, strict=True)):
        a, b = x.offsets[s] + i, y.offsets[s] + j
        if tested[n]:
            words[s] += int(forward[a] == b) + int(backward[b] == a)
            links[s] += 2
    assert found.words.tolist() == words.tolist()
    assert found.links.tolist() == links.tolist()
    assert 0 < words.sum() < links.sum()

    def means(v):
        rows = [v.data[a:b] for a, b in zip(v.offsets[:-1], v.offsets[1:], strict=True)]
        return np.stack([r.mean(axis=0) if len(r) else np.zeros(6) for r in rows])

    forward = literal_neighbours(means(x), means(y))
    backward = literal_neighbours(means(y), means(x))
    expected = [float((forward[s] == s) + (backward[s] == s)) for s in range(14) if s != 3]
    assert np.delete(found.sentences, 3).tolist() == expected


def test_vectors_that_are_not_finite_hit_nothing():
    corpus, pairs = make_text("xx", 4, 0)
    offsets = np.concatenate([[0], np.cumsum(corpus.source.lengths())])
    vectors = Embeddings(np.full((offsets[-1], 3), np.nan, np.float32), offsets)
    found = hits(vectors, vectors, HeldOutText(corpus, pairs, np.ones(len(pairs), bool)))
    assert accuracies([found]) == (0, 0)


def test_gain_and_its_standard_error_equal_the_formula():
    rng = np.random.default_rng(4)
    before, after, gains, variances = [], [], [], []
    for n in (20, 9):
        links = rng.integers(0, 12, n) * 2.0
        old, new = np.floor(links * rng.random(n)), np.floor(links * rng.random(n) ** 0.5)
        before.append(Hits(old, links, np.minimum(old, 2)))
        after.append(Hits(new, links, np.minimum(new, 2)))
        d = sum(new[s] - old[s] for s in range(n)) / sum(links)
        squares = sum((new[s] - old[s] - d * links[s]) ** 2 for s in range(n))
        gains.append(d)
        variances.append(n / (n - 1) * squares / sum(links) ** 2)
    more, error = gain(before, after)
    assert more == pytest.approx(100 * sum(gains) / 2)
    assert error == pytest.approx(100 * math.sqrt(sum(variances)) / 2)
    assert more == pytest.approx(accuracies(after)[0] - accuracies(before)[0])
    assert sentence_gain(before, after)[0] == pytest.approx(
        accuracies(after)[1] - accuracies(before)[1]
    )


def test_the_standard_error_equals_the_spread_of_resampled_gains():
    rng = np.random.default_rng(5)
    links = rng.integers(4, 12, 300) * 1.0
    old, new = rng.binomial(links.astype(int), 0.5), rng.binomial(links.astype(int), 0.6)
    _, error = gain([Hits(old, links, old)], [Hits(new, links, new)])
    samples = rng.integers(0, 300, (2000, 300))
    resampled = 100 * (new - old)[samples].sum(axis=1) / links[samples].sum(axis=1)
    assert error == pytest.approx(resampled.std(), rel=0.1)


# -- decisions -------------------------------------------------------------------------------------
def same_weights(one, other):
    weights = other.model.state_dict()
    return all(torch.equal(value, weights[name]) for name, value in one.model.state_dict().items())


@pytest.mark.parametrize("kind", [Contrastive, FineTune])
def test_an_encoder_that_gained_nothing_is_returned_unchanged(tiny_encoder, kind):
    text = training_data(*make_text("xx", 60, 0))
    with pytest.warns(UnchangedWarning, match="gained nothing on 12 held-out pairs .* unchanged"):
        fitted = kind(**TUNER, learning_rate=1e-9).fit(tiny_encoder, text)
    assert same_weights(fitted.encoder, tiny_encoder)
    assert fitted.encoder is not tiny_encoder
    assert tiny_encoder.made is None
    assert fitted.encoder.fingerprint == tiny_encoder.fingerprint
    about = fitted.record["held_out"]
    assert (about["unchanged"], about["selected_update"], about["sentence_pairs"]) == (True, 0, 12)
    counts = fitted.record["counts"]
    assert (counts["sentence_pairs"], counts["without_links"]) == (47, 1)
    assert about["summary"].startswith(f"{kind.__name__.lower()} training gained nothing on 12")
    assert [point["step"] for point in about["points"]] == [0, 3, 6, 9, 12]
    assert fitted.encoder.made["held_out"] == about


def test_the_best_weights_are_returned_if_later_ones_are_worse(tiny_encoder, monkeypatch):
    """Check that the weights of the selected update are those of a run that ends there."""
    measured = []

    def scripted(source, target, text):
        right = [0, 6, 9, 7, 9][
            len(measured) % 5
        ]  # update 6 is best, and later ones are not better
        measured.append(right)
        n = len(text.corpus)
        return Hits(np.full(n, right / 10), np.ones(n), np.ones(n))

    monkeypatch.setattr("calque.alignment.validation.hits", scripted)
    tuner = Contrastive(**TUNER, learning_rate=1e-3)
    fitted = tuner.fit(tiny_encoder, training_data(*make_text("xx", 60, 0)))
    assert fitted.record["held_out"]["selected_update"] == 6
    assert fitted.record["held_out"]["summary"].startswith(
        "contrastive training gained 90.0 points"
    )
    assert len(fitted.history) == 12
    weights = {}
    usual = Alignment.after_update

    def remember(self, step):
        usual(self, step)
        if step == 6:
            state = self.module.state_dict()
            weights.update({name: value.clone() for name, value in state.items()})

    monkeypatch.setattr(Alignment, "after_update", remember)
    tuner.fit(tiny_encoder, training_data(*make_text("xx", 60, 0)))
    assert weights
    trained = fitted.encoder.model.state_dict()
    assert all(torch.equal(value, trained[name]) for name, value in weights.items())


@pytest.mark.parametrize("check", ["words", "both"])
def test_sentence_retrieval_must_not_fall_unless_only_words_are_checked(
    tiny_encoder, monkeypatch, check
):
    def scripted(source, target, text, calls=[]):  # noqa: B006
        calls.append(1)
        n, is_first = len(text.corpus), len(calls) == 1
        right = 0.5 if is_first else 0.9
        sentences = np.full(n, 2.0)
        if not is_first:
            sentences[: n // 2] = 0
        return Hits(np.full(n, right), np.ones(n), sentences)

    monkeypatch.setattr("calque.alignment.validation.hits", scripted)
    tuner = Contrastive(**TUNER, learning_rate=1e-3, held_out_check=check)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = tuner.fit(tiny_encoder, training_data(*make_text("xx", 60, 0)))
    assert fitted.record["held_out"]["unchanged"] == (check == "both")
    if check == "both":
        (message,) = [str(each.message) for each in caught if "held-out" in str(each.message)]
        assert "lowered sentence retrieval on 12 held-out pairs" in message
        assert "sentences 100.0 before, 50.0 after" in message


def test_a_gain_within_the_standard_error_is_no_gain(tiny_encoder, monkeypatch):
    def scripted(source, target, text, calls=[]):  # noqa: B006
        calls.append(1)
        right = np.zeros(len(text.corpus))
        if len(calls) > 1:
            right[:1] = 1  # one sentence of 12 gained: 8.3 points, with a standard error of 8.3
        return Hits(right, np.ones(len(right)), right)

    monkeypatch.setattr("calque.alignment.validation.hits", scripted)
    with pytest.warns(UnchangedWarning, match=r"words 0\.0 before, 8\.3 after"):
        fitted = Contrastive(**TUNER).fit(tiny_encoder, training_data(*make_text("xx", 60, 0)))
    assert fitted.record["held_out"]["points"][1]["error"] == pytest.approx(8.33, abs=0.01)


def test_without_held_out_pairs_the_last_weights_are_returned(tiny_encoder):
    corpus, pairs = make_text("xx", 60, 0)
    fitted = Contrastive(**TUNER, held_out=0).fit(tiny_encoder, training_data(corpus, pairs))
    assert fitted.record["counts"]["sentence_pairs"] == 59  # one has no link
    assert "held_out" not in fitted.record
    assert not {"held_out", "held_out_check"} & fitted.record["settings"].keys()
    with_default = Contrastive(**TUNER).settings()
    assert with_default["held_out"] == 0.05
    assert with_default["held_out_check"] == "both"


def test_a_small_text_is_used_whole_and_the_record_says_so(tiny_encoder):
    fitted = Contrastive(**TUNER).fit(tiny_encoder, training_data(*make_text("xx", 12, 0)))
    assert fitted.record["counts"]["sentence_pairs"] == 12
    assert "no sentence pairs were held out" in fitted.record["held_out"]["summary"]
    assert not same_weights(fitted.encoder, tiny_encoder)


def test_a_resumed_run_makes_the_same_decisions(tiny_encoder, tmp_path):
    class Stop(Exception):
        pass

    text = training_data(*make_text("xx", 60, 0))
    settings = {**TUNER, "learning_rate": 1e-3, "temperature": 0.1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)
        whole = Contrastive(**settings).fit(tiny_encoder, text)
        for stop in (4, 8):  # after the first and after the second measurement

            def loss(self, batch, stop=stop, calls=[]):  # noqa: B006
                calls.append(1)
                if len(calls) > stop:
                    raise Stop
                return Contrastive.loss(self, batch)

            folder = tmp_path / str(stop)
            ends = type("Contrastive", (Contrastive,), {"loss": loss})(**settings)
            with pytest.raises(Stop):
                ends.fit(tiny_encoder, text, Run(folder, checkpoint_every=2))
            resumed = Contrastive(**settings).fit(tiny_encoder, text, Run(folder))
            assert resumed.record["held_out"] == whole.record["held_out"]
            assert resumed.history == whole.history
            assert same_weights(resumed.encoder, whole.encoder)


def test_invalid_settings_are_rejected():
    for share in (-0.1, 1, 2):
        with pytest.raises(SettingError, match="held_out must be"):
            Contrastive(towards="en", held_out=share)
    with pytest.raises(SettingError, match="held_out_check must be words or both, got 'all'"):
        Contrastive(towards="en", held_out_check="all")


def test_each_text_holds_out_pairs():
    texts = [make_text("xx", 50, 0), make_text("yy", 30, 1)]
    data = LinkedText(tuple(t[0] for t in texts), tuple(t[1] for t in texts))
    training, held_out = hold_out(data, 0.05)
    assert [len(each.corpus) for each in held_out] == [10, 6]
    assert training.corpora == data.corpora
    for before, after, n in zip(data.pairs, training.pairs, (10, 6), strict=True):
        assert len(np.unique(after.sentence)) == len(np.unique(before.sentence)) - n
