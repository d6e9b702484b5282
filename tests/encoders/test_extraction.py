"""Tests of vector extraction to files, and of texts that exceed the encoder's maximum length."""

import warnings

import numpy as np
import pytest
from safetensors.numpy import load_file

from calque.encoders import load_encoder
from calque.encoders.extraction import UncoveredWordsWarning, encode_long
from calque.text import Sentences
from calque.vectors import Embeddings
from planted import Planted

ROOM = 10


def make_sentences(seed: int = 0, n: int = 160) -> Sentences:
    rng = np.random.default_rng(seed)
    words = ["the", "cat", "harbour", "und", "wind", "château", "time", "\u200b", "ferry"]
    return Sentences.of(
        [[words[i] for i in rng.integers(0, 9, rng.integers(0, 30))] for _ in range(n)], "en"
    )


@pytest.fixture
def encoder(tiny_folder, monkeypatch):
    monkeypatch.setattr("calque.encoders.base.WINDOW", 20)
    encoder = load_encoder(tiny_folder, precision="highest", device="cpu")
    encoder.budget = 64
    return encoder


uncovered = pytest.mark.filterwarnings("ignore::calque.encoders.extraction.UncoveredWordsWarning")


@uncovered
def test_encode_to_writes_the_vectors_that_encode_returns(encoder, tmp_path):
    sentences = make_sentences()
    expected = encoder.encode(sentences)
    found = encoder.encode_to(tmp_path / "new" / "vectors.safetensors", sentences)
    assert isinstance(found.data, np.memmap)
    np.testing.assert_allclose(found.data, expected.data, rtol=0, atol=1e-5)
    assert np.array_equal(found.offsets, expected.offsets)
    assert np.array_equal(found.covered, expected.covered)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["vectors.safetensors"]
    assert np.array_equal(load_file(tmp_path / "new" / "vectors.safetensors")["data"], found.data)


@uncovered
def test_several_layers_are_computed_in_one_forward_pass(encoder, monkeypatch):
    sentences = make_sentences(n=40)
    alone = {layer: encoder.encode_layers(sentences, [layer])[layer] for layer in (0, 2, 3)}
    calls = []
    real = encoder.model.embeddings.forward
    monkeypatch.setattr(
        encoder.model.embeddings, "forward", lambda *a, **k: calls.append(1) or real(*a, **k)
    )
    encoder.encode_layers(sentences, [3])
    once = len(calls)
    found = encoder.encode_layers(sentences, [2, -1, 0, 3])
    assert len(calls) == 2 * once
    assert list(found) == [2, -1, 0, 3]
    for layer, expected in {2: alone[2], -1: alone[3], 0: alone[0], 3: alone[3]}.items():
        assert np.allclose(found[layer].data, expected.data, rtol=0, atol=1e-5)


@uncovered
@pytest.mark.parametrize("nothing", [[], [[], []], [["\u200b"]]])
def test_texts_without_words_have_no_vectors(encoder, tmp_path, nothing):
    for found in (encoder.encode(nothing), encoder.encode_to(tmp_path / "vectors", nothing)):
        assert (len(found), found.n_words) == (len(nothing), sum(map(len, nothing)))


class Short(Planted):
    """Encoder with a limit of ten subwords: the word `w3` has three subwords; `w0` has none, so it
    has no vector.

    The vector of a word contains its number of subwords, and the number of words to its left and
    right in the window.
    """

    def encode(self, sentences, *, progress=False):
        data, covered = [], []
        for sentence in sentences:
            sizes = [int(word[1:]) for word in sentence.words]
            fits = np.cumsum(sizes) <= ROOM
            n = int(fits.sum())
            data += [
                [size, k, n - 1 - k] if k < n and size else [0, 0, 0]
                for k, size in enumerate(sizes)
            ]
            covered += [bool(fit and size) for fit, size in zip(fits, sizes, strict=True)]
        if not all(covered):
            warnings.warn(UncoveredWordsWarning("not read"), stacklevel=2)
        offsets = np.cumsum([0, *map(len, sentences)])
        return Embeddings(
            np.array(data, dtype=np.float32).reshape(-1, 3), offsets, np.array(covered)
        )


def test_each_word_vector_comes_from_the_window_with_the_most_context():
    rng = np.random.default_rng(0)
    texts = [[f"w{size}" for size in rng.integers(1, 5, size=n)] for n in (0, 3, 9, 17, 30)]
    found = encode_long(Short(dim=3), Sentences.of(texts, "en"))
    assert found.covered is None
    for number, text in enumerate(texts):
        sizes = [int(word[1:]) for word in text]
        windows, start, end = [], 0, 0
        while end < len(text):
            end = start + int((np.cumsum(sizes[start:]) <= ROOM).sum())
            windows.append((start, end))
            start = (start + end) // 2
        for k, (size, left, right) in enumerate(found[number].tolist()):
            having = [(a, b) for a, b in windows if a <= k < b]
            best = max(min(k - a, b - 1 - k) for a, b in having)
            assert (size, min(left, right)) == (sizes[k], best)


def test_words_without_vectors_do_not_affect_other_words():
    texts = [["w0", "w4", "w0"], ["w4", "w11", "w4", "w0", "w9", "w9", "w3"], ["w11"]]
    with pytest.warns(
        UncoveredWordsWarning, match="5 of 11 words have no vector even if encoded alone"
    ):
        found = encode_long(Short(dim=3), Sentences.of(texts, "en"))
    assert found.covered.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0]
    assert found.data[:, 0].tolist() == [0, 4, 0, 4, 0, 4, 0, 9, 9, 3, 0]
