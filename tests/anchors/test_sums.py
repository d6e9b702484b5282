"""Test that anchors are means over occurrences, however the text is divided into parts."""

import math

import numpy as np
import pytest

from calque.anchors import AnchorSums, anchors_of
from calque.errors import InputError
from calque.text import Sentences
from calque.vectors import Embeddings, map_arrays, write_arrays

DIM = 7


def zipf(seed=0, n=200, types=30, dim=DIM, layers=(0, 3), uncovered=0.05, lang="en"):
    """Return text with Zipfian word frequencies and, for each layer, vectors far from the
    origin.
    """
    rng = np.random.default_rng(seed)
    p = 1 / np.arange(1, types + 1)
    text = [
        [f"w{k}" for k in rng.choice(types, rng.integers(0, 9), p=p / p.sum())] for _ in range(n)
    ]
    offsets = np.cumsum([0, *map(len, text)])
    covered = rng.random(offsets[-1]) >= uncovered
    found = {}
    for layer in layers:
        data = (rng.standard_normal((offsets[-1], dim)) + 50 + layer).astype(np.float32)
        data[~covered] = 0
        found[layer] = Embeddings(data, offsets, covered)
    return Sentences.of(text, lang), found


def published_loop(sentences, found, vocabulary):
    """Compute running means like the published script (`gen_anchors.py` of Schuster et al.
    2019).
    """
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
                norms[layer] = norms[layer] * (total / (total + 1)) + float(np.linalg.norm(x)) / (
                    total + 1
                )
            occurrences[word] = n + 1
            total += 1
    return anchors, norms, occurrences


def cut(sentences, found, *bounds):
    """Yield the parts of the text between the given bounds."""
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
    """Check that two sets of anchors are equal up to rounding."""
    assert a.keys() == b.keys()
    for layer in a:
        assert a[layer].words == b[layer].words
        np.testing.assert_array_equal(a[layer].counts, b[layer].counts)
        np.testing.assert_allclose(a[layer].vectors, b[layer].vectors, rtol=max(tolerance, 1e-7))
        np.testing.assert_allclose(
            a[layer].variances, b[layer].variances, rtol=1e4 * tolerance, atol=1e4 * tolerance
        )
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


def test_variances_and_norms_equal_those_of_the_occurrences():
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
def test_sums_do_not_depend_on_the_order_or_division_of_the_text(tmp_path, most):
    sentences, found = zipf(types=6, uncovered=0)
    rng = np.random.default_rng(1)
    for embeddings in found.values():  # with most=7, large values cancel and small values remain
        embeddings.data[...] *= 10.0 ** rng.integers(-most, most + 1, len(embeddings.data))[:, None]
        embeddings.data[...] *= rng.choice([-1, 1], embeddings.data.shape)
    whole = summed([(sentences, found)])
    parts = [summed([part]) for part in cut(sentences, found, 50, 120, 180)]
    (parts[1].merge(parts[3])).save(tmp_path / "sums")
    joined = (
        summed([], vocabulary=whole.words)
        .merge(AnchorSums.open(tmp_path / "sums"))
        .merge(parts[2])
        .merge(parts[0])
    )
    flat = np.array([word for sentence in sentences for word in sentence.words])
    for layer, got in whole.finish().items():
        other = joined.finish()[layer]
        assert (got.words, list(got.counts)) == (other.words, list(other.counts))
        np.testing.assert_allclose(got.norms, other.norms, rtol=1e-12)
        np.testing.assert_allclose(got.variances, other.variances, rtol=1e-12)
        for word, *vectors, norm, n in zip(
            got.words, got.vectors, other.vectors, got.norms, got.counts, strict=True
        ):
            rows = found[layer].data[flat == word].astype(np.float64)
            mean = [math.fsum(column) / n for column in rows.T]
            for vector in vectors:
                np.testing.assert_allclose(vector, mean, rtol=1e-7, atol=1e-12 * norm)
            assert norm == pytest.approx(math.fsum(np.linalg.norm(rows, axis=1)) / n, rel=1e-12)


def test_only_the_first_occurrences_are_used():
    sentences, found = zipf(uncovered=0)
    sums = AnchorSums(DIM, layers=(0, 3), most_occurrences=3, lang="en")
    for part in cut(sentences, found, 2, 60):
        wanted = sums.wanted(part[0])
        full = {w for w, n in zip(sums.words, sums.counts, strict=True) if n == 3}
        assert wanted.tolist() == [
            any(word not in full for word in sentence.words) for sentence in part[0]
        ]
        sums.add(*part)
    flat = np.array([word for sentence in sentences for word in sentence.words])
    got = sums.finish()[3]
    assert got.counts.max() == 3
    for word, vector in zip(got.words, got.vectors, strict=True):
        np.testing.assert_allclose(
            vector, found[3].data[flat == word][:3].mean(0, dtype=float), rtol=1e-6
        )


def test_a_saved_computation_can_be_resumed(tmp_path):
    sentences, found = zipf()
    parts = list(cut(sentences, found, 90))
    whole = summed(parts)
    summed(parts[:1]).save(tmp_path / "sums", note="half")
    assert AnchorSums.note_of(tmp_path / "sums") == "half"
    again = AnchorSums.open(tmp_path / "sums")
    again.add(*parts[1])
    same(again.finish(), whole.finish())
    empty = AnchorSums(DIM, lang="en")
    empty.save(tmp_path / "none")
    assert len(AnchorSums.open(tmp_path / "none").finish()[0]) == 0
    (tmp_path / "sums").write_bytes(b"\x00" * 50)
    with pytest.raises(InputError, match="safetensors"):
        AnchorSums.open(tmp_path / "sums")


@pytest.mark.parametrize(
    ("name", "value"),
    [("counts", -1), ("0.sums", np.inf), ("0.squares", np.nan), ("0.norms", np.inf)],
)
def test_sums_that_are_not_finite_are_an_error(tmp_path, name, value):
    sums = AnchorSums(3, layers=[0], lang="en")
    sums.add(
        Sentences.of([["a", "b"]], "en"),
        {0: Embeddings(np.ones((2, 3), np.float32), np.array([0, 2]))},
    )
    sums.save(tmp_path / "sums")
    arrays, metadata = map_arrays(tmp_path / "sums")
    changed = {key: np.array(array) for key, array in arrays.items()}
    changed[name][0] = value
    write_arrays(tmp_path / "wrong", changed, metadata)
    AnchorSums.open(tmp_path / "sums")
    with pytest.raises(InputError, match="non-negative|NaN or infinity"):
        AnchorSums.open(tmp_path / "wrong")


@pytest.mark.parametrize(
    ("name", "kind"), [("counts", np.bool_), ("counts", np.float32), ("0.sums", np.int64)]
)
def test_sums_of_another_data_type_are_an_error(tmp_path, name, kind):
    sums = AnchorSums(3, layers=[0], lang="en")
    sums.add(
        Sentences.of([["a", "b"]], "en"),
        {0: Embeddings(np.ones((2, 3), np.float32), np.array([0, 2]))},
    )
    sums.save(tmp_path / "sums")
    arrays, metadata = map_arrays(tmp_path / "sums")
    write_arrays(tmp_path / "wrong", {**arrays, name: arrays[name].astype(kind)}, metadata)
    with pytest.raises(InputError, match="int64|data type int64"):
        AnchorSums.open(tmp_path / "wrong")


def test_anchors_of_a_text_equal_those_computed_from_sums():
    sentences, found = zipf(layers=(0,))
    whole = AnchorSums(DIM, lang="en")
    whole.add(sentences, found[0])
    for limits in ({}, {"at_least": 3}, {"most": 2}):
        same({0: anchors_of(sentences, found[0], **limits)}, whole.finish(**limits))
