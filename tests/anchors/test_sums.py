"""Anchors are means over occurrences, however the text is cut into parts."""

import json
import math

import numpy as np
import pytest

from calque.algebra.clusters import kmeans
from calque.anchors import (
    AnchorSums,
    open_anchors,
    read_avg_embeds,
    save_anchors,
    split_senses,
    write_avg_embeds,
)
from calque.anchors.senses import silhouette
from calque.encoders.anchors import compute_anchors, sum_anchors
from calque.encoders.extraction import UncoveredWordsWarning
from calque.errors import InputError, SettingError
from calque.text import Sentences
from calque.vectors import Embeddings

DIM = 7


def zipf(seed=0, n=200, types=30, dim=DIM, layers=(0, 3), uncovered=0.05, lang="en"):
    """Text with Zipf's frequencies, and vectors far from the origin, by layer."""
    rng = np.random.default_rng(seed)
    p = 1 / np.arange(1, types + 1)
    text = [[f"w{k}" for k in rng.choice(types, rng.integers(0, 9), p=p / p.sum())] for _ in range(n)]
    offsets = np.cumsum([0, *map(len, text)])
    covered = rng.random(offsets[-1]) >= uncovered
    found = {}
    for layer in layers:
        data = (rng.standard_normal((offsets[-1], dim)) + 50 + layer).astype(np.float32)
        data[~covered] = 0
        found[layer] = Embeddings(data, offsets, covered)
    return Sentences.of(text, lang), found


def published_loop(sentences, found, vocabulary):
    """The loop of the published script (Schuster et al. 2019, `gen_anchors.py`), written down again: a running mean."""
    first = next(iter(found.values()))
    anchors = {layer: {} for layer in found}
    norms, occurrences, total = dict.fromkeys(found, 0.0), {}, 0
    for i, sentence in enumerate(sentences):
        for j, word in enumerate(sentence.words):
            row = first.offsets[i] + j
            if word not in vocabulary or (first.covered is not None and not first.covered[row]):
                continue
            n = occurrences.get(word, 0)
            for layer, embeddings in found.items():
                x = embeddings.data[row]
                old = anchors[layer].get(word, np.zeros(len(x)))
                anchors[layer][word] = old * (n / (n + 1)) + x / (n + 1)
                norms[layer] = norms[layer] * (total / (total + 1)) + float(np.linalg.norm(x)) / (total + 1)
            occurrences[word] = n + 1
            total += 1
    return anchors, norms, occurrences


def cut(sentences, found, *bounds):
    """Parts of the text."""
    for start, stop in zip((0, *bounds), (*bounds, len(sentences)), strict=True):
        part = {}
        for layer, e in found.items():
            a, b = e.offsets[start], e.offsets[stop]
            covered = None if e.covered is None else e.covered[a:b]
            part[layer] = Embeddings(e.data[a:b], e.offsets[start : stop + 1] - a, covered)
        yield sentences[start:stop], part


def summed(parts, **options):
    sums = AnchorSums(DIM, layers=(0, 3), lang="en", **options)
    for sentences, found in parts:
        sums.add(sentences, found)
    return sums


def same(a, b, tolerance=1e-12):
    """Anchors are equal but for rounding."""
    assert a.keys() == b.keys()
    for layer in a:
        assert a[layer].words == b[layer].words
        np.testing.assert_array_equal(a[layer].counts, b[layer].counts)
        np.testing.assert_allclose(a[layer].vectors, b[layer].vectors, rtol=max(tolerance, 1e-7))
        np.testing.assert_allclose(a[layer].variances, b[layer].variances, rtol=1e4 * tolerance, atol=1e4 * tolerance)
        np.testing.assert_allclose(a[layer].norms, b[layer].norms, rtol=tolerance)


@pytest.mark.parametrize("vocabulary", [None, ["w3", "w0", "w29", "never"]])
def test_anchors_equal_the_published_loop(vocabulary):
    sentences, found = zipf()
    every = {word for sentence in sentences for word in sentence.words}
    slow, norms, occurrences = published_loop(sentences, found, set(vocabulary or every))
    anchors = summed(cut(sentences, found, 13, 13, 90), vocabulary=vocabulary).finish()
    for layer, got in anchors.items():
        assert set(got.words) == set(slow[layer])
        assert got.mean_norm == pytest.approx(norms[layer], rel=1e-6)
        assert list(got.counts) == sorted(got.counts, reverse=True)
        for word, vector, count in zip(got.words, got.vectors, got.counts, strict=True):
            np.testing.assert_allclose(vector, slow[layer][word], rtol=1e-6)
            assert count == occurrences[word]


def test_variance_and_norm_are_those_of_the_occurrences():
    sentences, found = zipf()
    anchors = summed([(sentences, found)]).finish(at_least=2)
    flat = np.array([word for sentence in sentences for word in sentence.words])
    for layer, got in anchors.items():
        for word, variance, norm in zip(got.words, got.variances, got.norms, strict=True):
            rows = found[layer].data[(flat == word) & found[layer].covered].astype(np.float64)
            assert variance == pytest.approx(((rows - rows.mean(0)) ** 2).sum(1).mean(), rel=1e-6)
            assert norm == pytest.approx(np.linalg.norm(rows, axis=1).mean(), rel=1e-9)
    assert min(anchors[0].counts) >= 2


@pytest.mark.parametrize("most", [0, 7])
def test_sums_agree_in_any_order_and_any_parts(tmp_path, most):
    sentences, found = zipf(types=6, uncovered=0)
    rng = np.random.default_rng(1)
    for embeddings in found.values():  # large numbers that cancel, and small ones that are left; or all of one size
        embeddings.data[...] *= 10.0 ** rng.integers(-most, most + 1, len(embeddings.data))[:, None]
        embeddings.data[...] *= rng.choice([-1, 1], embeddings.data.shape)
    whole = summed([(sentences, found)])
    parts = [summed([part]) for part in cut(sentences, found, 50, 120, 180)]
    (parts[1].merge(parts[3])).save(tmp_path / "sums")
    joined = (
        summed([], vocabulary=whole.words).merge(AnchorSums.open(tmp_path / "sums")).merge(parts[2]).merge(parts[0])
    )
    flat = np.array([word for sentence in sentences for word in sentence.words])
    for layer, got in whole.finish().items():
        other = joined.finish()[layer]
        assert (got.words, list(got.counts)) == (other.words, list(other.counts))
        np.testing.assert_allclose(got.norms, other.norms, rtol=1e-12)
        np.testing.assert_allclose(got.variances, other.variances, rtol=1e-12)
        for word, *vectors, norm, n in zip(got.words, got.vectors, other.vectors, got.norms, got.counts, strict=True):
            rows = found[layer].data[flat == word].astype(np.float64)
            mean = [math.fsum(column) / n for column in rows.T]
            for vector in vectors:
                np.testing.assert_allclose(vector, mean, rtol=1e-7, atol=1e-12 * norm)
            assert norm == pytest.approx(math.fsum(np.linalg.norm(rows, axis=1)) / n, rel=1e-12)


def test_only_the_first_occurrences_count():
    sentences, found = zipf(uncovered=0)
    sums = AnchorSums(DIM, layers=(0, 3), most_occurrences=3, lang="en")
    for part in cut(sentences, found, 2, 60):
        wanted = sums.wanted(part[0])
        full = {w for w, n in zip(sums.words, sums.counts, strict=True) if n == 3}
        assert wanted.tolist() == [any(word not in full for word in sentence.words) for sentence in part[0]]
        sums.add(*part)
    flat = np.array([word for sentence in sentences for word in sentence.words])
    got = sums.finish()[3]
    assert got.counts.max() == 3
    for word, vector in zip(got.words, got.vectors, strict=True):
        np.testing.assert_allclose(vector, found[3].data[flat == word][:3].mean(0, dtype=float), rtol=1e-6)


def test_a_saved_pass_goes_on(tmp_path):
    sentences, found = zipf()
    parts = list(cut(sentences, found, 90))
    whole = summed(parts, samples=4)
    summed(parts[:1], samples=4).save(tmp_path / "sums", note="half")
    assert AnchorSums.note_of(tmp_path / "sums") == "half"
    again = AnchorSums.open(tmp_path / "sums")
    again.add(*parts[1])
    same(again.finish(), whole.finish())
    for code in range(len(whole.words)):
        np.testing.assert_array_equal(again.samples.of(code), whole.samples.of(code))
    empty = AnchorSums(DIM, lang="en")
    empty.save(tmp_path / "none")
    assert len(AnchorSums.open(tmp_path / "none").finish()[0]) == 0
    (tmp_path / "sums").write_bytes(b"\x00" * 50)
    with pytest.raises(InputError, match="safetensors"):
        AnchorSums.open(tmp_path / "sums")


# -- samples and senses ----------------------------------------------------------------------------------------------
def test_samples_are_even_and_of_bounded_size():
    drawn = np.zeros(50)
    for seed in range(400):
        text = Sentences.of([["a", "b"] * 10] * 5, "en")  # 50 occurrences of each
        data = np.repeat(np.arange(50.0), 2)[:, None].astype(np.float32)
        sums = AnchorSums(1, samples=5, lang="en", seed=seed)
        for start in (0, 20, 40, 60, 80):
            part = Embeddings(data[start : start + 20], np.array([0, 20]))
            sums.add(text[:1], part)
        kept = sums.samples.of(0)[0, :, 0]
        assert len(set(kept)) == 5
        drawn[kept.astype(int)] += 1
    # each of 50 is drawn 40 times on average, with a standard deviation of 6
    assert 15 < drawn.min() <= drawn.max() < 65
    assert abs(drawn[:25].sum() - 1000) < 100


def test_samples_merge():
    parts = []
    for seed in range(2):
        sums = AnchorSums(1, samples=6, lang="en", seed=seed)
        data = (np.arange(30.0) + 100 * seed)[:, None].astype(np.float32)
        sums.add(Sentences.of([["b", "a"][:: 1 - 2 * seed] * 15], "en"), Embeddings(data, np.array([0, 30])))
        parts.append(sums)
    kept = {s: {w: set(parts[s].samples.of(k)[0, :, 0]) for k, w in enumerate(parts[s].words)} for s in (0, 1)}
    merged = parts[0].merge(parts[1])
    for code, word in enumerate(merged.words):
        found = set(merged.samples.of(code)[0, :, 0])
        assert len(found) == 6
        assert found <= kept[0][word] | kept[1][word]
    assert merged.finish()[0].counts.tolist() == [30, 30]


def senses_text(rng, dim=30, n=120):
    """`one` has a centre, `two` has two far apart, `three` three, `rare` too few occurrences."""
    centres = {"one": 1, "two": 2, "three": 3, "rare": 2}
    words, rows, which = [], [], []
    for word, k in centres.items():
        c = rng.standard_normal((k, dim)) * 1.5
        for i in range(6 if word == "rare" else n):
            words.append(word)
            which.append(i % k)
            rows.append(c[i % k] + rng.standard_normal(dim) + 3)
    data = np.array(rows, dtype=np.float32)
    offsets = np.arange(len(words) + 1)
    text = Sentences.of([[word] for word in words], "en")
    return text, {0: Embeddings(data, offsets), 1: Embeddings(-2 * data, offsets)}, np.array(which)


def test_clusters_of_occurrences_are_senses():
    text, found, which = senses_text(np.random.default_rng(0))
    sums = AnchorSums(30, layers=(0, 1), samples=100, lang="en")
    sums.add(text, found)
    split = split_senses(sums)
    words = split.whole[0].words
    assert dict(zip(words, split.senses.tolist(), strict=True)) == {"one": 1, "two": 2, "three": 3, "rare": 1}
    assert set(split.single()[1].words) == {"one", "rare"}
    assert np.isnan(split.silhouettes[words.index("rare")])
    anchors = split.anchors
    assert anchors[0].words.count("three") == 3
    np.testing.assert_allclose(anchors[1].vectors, -2 * anchors[0].vectors, rtol=1e-4, atol=1e-4)
    flat = np.array([sentence.words[0] for sentence in text])
    for word in ("two", "three"):
        rows = [k for k, w in enumerate(anchors[0].words) if w == word]
        assert anchors[0].counts[rows].sum() == 120
        for k in range(len(rows)):
            true = found[0].data[(flat == word) & (which == k)].mean(0)
            nearest = np.linalg.norm(anchors[0].vectors[rows] - true, axis=1).min()
            assert nearest < 1.0  # the centres are 11 apart, a mean of 33 occurrences is uncertain by 1
        assert (anchors[0].variances[rows] < split.whole[0].variances[words.index(word)]).all()
    with pytest.raises(SettingError, match="kept no occurrences"):
        split_senses(AnchorSums(3))


def test_kmeans_and_silhouette_against_the_slow_way():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.standard_normal((20, 3)) + shift for shift in (0, 6, -6)])
    gram = x @ x.T
    squared = np.maximum(np.diag(gram)[:, None] + np.diag(gram) - 2 * gram, 0)
    labels = kmeans(gram, squared, 3, 5, rng)
    assert sorted(tuple(np.unique(labels[k : k + 20])) for k in (0, 20, 40)) == [(0,), (1,), (2,)]
    labels = rng.integers(3, size=60)
    distances = np.linalg.norm(x[:, None] - x, axis=2)
    slow = []
    for i in range(60):
        means = {c: [distances[i, j] for j in range(60) if labels[j] == c and j != i] for c in range(3)}
        a = np.mean(means[labels[i]])
        b = min(np.mean(means[c]) for c in range(3) if c != labels[i])
        slow.append((b - a) / max(a, b))
    assert silhouette(distances, labels) == pytest.approx(np.mean(slow))


# -- files -----------------------------------------------------------------------------------------------------------
def test_files_come_back(tmp_path):
    anchors = summed([zipf()]).finish()
    save_anchors(tmp_path, anchors)
    again = open_anchors(tmp_path)
    same(again, anchors, 0)
    assert again[3].lang == "en"
    write_avg_embeds(tmp_path, anchors)
    assert (tmp_path / "avg_embeds_3.txt").read_text().splitlines()[0] == f"{len(anchors[3])} {DIM}"
    norms = json.loads((tmp_path / "norms.json").read_text())
    assert norms["avg_norm_layer_0"] == pytest.approx(anchors[0].mean_norm)
    text, lengths = read_avg_embeds(tmp_path, lang="en")
    for layer in anchors:
        assert text[layer].words == anchors[layer].words
        np.testing.assert_array_equal(text[layer].vectors, anchors[layer].vectors)
        np.testing.assert_array_equal(text[layer].counts, anchors[layer].counts)
        assert lengths[layer] == pytest.approx(anchors[layer].mean_norm)
    with pytest.raises(InputError, match="not anchors saved by calque"):
        open_anchors(_sums(tmp_path))


def _sums(folder):
    summed([]).save(folder / "sums")
    return folder / "sums"


@pytest.mark.parametrize(
    ("text", "message"),
    [("2 3\na 1 2 3\n", "2 words are promised, 1"), ("1 3\na 1 2\n", "line 2: expected a word and 3 numbers"),
     ("1 2\na 1 x\n", "line 2: not a number"), ("a 1 2\n", "line 1: expected the number of words"),
     ("1 1\na 1\nb 2\n", "line 3"), ("9000000000 300\na 1\n", "more than the file can hold")],
)  # fmt: skip
def test_damaged_text_files_say_where(tmp_path, text, message):
    (tmp_path / "avg_embeds_1.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        read_avg_embeds(tmp_path)


def test_a_folder_without_anchors(tmp_path):
    with pytest.raises(InputError, match="no avg_embeds_LAYER"):
        read_avg_embeds(tmp_path)


# -- with an encoder -------------------------------------------------------------------------------------------------
WORDS = ["the", "cat", "sees", "a", "house", "of", "time", "and", "water", "in"]


@pytest.fixture
def text():
    rng = np.random.default_rng(0)
    return Sentences.of([[WORDS[k] for k in rng.integers(0, 10, rng.integers(1, 7))] for _ in range(40)], "en")


def test_an_encoder_in_chunks_equals_one_pass(tiny_encoder, text, tmp_path):
    found = tiny_encoder.encode_layers(text, (1, -1))
    slow, norms, _ = published_loop(text, found, set(WORDS))
    anchors = compute_anchors(tiny_encoder, text, layers=(1, -1), block=7)
    assert list(anchors) == [1, tiny_encoder.n_layers]
    for number, layer in ((1, 1), (tiny_encoder.n_layers, -1)):
        assert anchors[number].lang == "en"
        assert anchors[number].mean_norm == pytest.approx(norms[layer], rel=1e-5)
        for word, vector in zip(anchors[number].words, anchors[number].vectors, strict=True):
            np.testing.assert_allclose(vector, slow[layer][word], atol=2e-5)
    shards = [sum_anchors(tiny_encoder, text, layers=(1, -1), block=5, shard=(k, 3)) for k in range(3)]
    merged = shards[0].merge(shards[1]).merge(shards[2])
    assert merged.n_sentences == 40
    for layer, got in merged.finish().items():
        by_word = dict(zip(got.words, got.vectors, strict=True))
        np.testing.assert_allclose([by_word[w] for w in anchors[layer].words], anchors[layer].vectors, atol=1e-5)


def test_a_stopped_pass_continues(tiny_encoder, text, tmp_path, monkeypatch):
    whole = compute_anchors(tiny_encoder, text, layers=(1,), block=8)
    calls = 0
    encode = type(tiny_encoder).encode_layers

    def stop(self, *arguments, **options):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return encode(self, *arguments, **options)

    monkeypatch.setattr(type(tiny_encoder), "encode_layers", stop)
    partial = tmp_path / "sums"
    with pytest.raises(KeyboardInterrupt):
        compute_anchors(tiny_encoder, text, layers=(1,), block=8, partial=partial, save_every=0)
    assert AnchorSums.open(partial).n_sentences == 16
    same(compute_anchors(tiny_encoder, text, layers=(1,), block=8, partial=partial, save_every=0), whole)
    assert calls == 6
    same(compute_anchors(tiny_encoder, text, layers=(1,), block=8, partial=partial), whole)
    assert calls == 6
    with pytest.raises(SettingError, match="another pass"):
        compute_anchors(tiny_encoder, text, layers=(2,), block=8, partial=partial)


def test_sentences_without_wanted_words_are_not_encoded(tiny_encoder, text, monkeypatch):
    seen = []
    encode = type(tiny_encoder).encode_layers

    def count(self, sentences, *arguments, **options):
        seen.extend(sentences)
        return encode(self, sentences, *arguments, **options)

    monkeypatch.setattr(type(tiny_encoder), "encode_layers", count)
    got = compute_anchors(tiny_encoder, text, layers=(2,), vocabulary=["cat"], most_occurrences=4, block=3)
    assert got[2].words == ("cat",)
    assert got[2].counts.tolist() == [4]
    assert all("cat" in sentence.words for sentence in seen)
    assert len(seen) < 10


def test_words_without_vectors_are_told_of_once(tiny_encoder):
    long = Sentences.of([["cat"] * 90] * 3, "en")  # beyond the 64 positions of this encoder
    with pytest.warns(UncoveredWordsWarning) as told:
        sums = sum_anchors(tiny_encoder, long, block=1)
    assert sums.uncovered > 0
    assert [str(warning.message).split()[0] for warning in told] == [str(sums.uncovered)]
