"""Texts that are longer than an encoder reads: every word has a vector, from the window that suits it best."""

import warnings

import numpy as np
import pytest

from calque.encoders import load_encoder
from calque.encoders.extraction import UncoveredWordsWarning
from calque.encoders.long_texts import encode_long
from calque.text import Sentences
from calque.vectors import Embeddings
from planted import Planted

ROOM = 10


class Short(Planted):
    """A word `w3` takes three of ten places; what it has of its sentence on either side is its vector. No vector: `w0`, and
    whatever does not fit."""

    def __init__(self):
        super().__init__(dim=3)
        self.read = []

    def encode(self, sentences, *, progress=False, out=None):
        data, covered = [], []
        for sentence in sentences:
            sizes = [int(word[1:]) for word in sentence.words]
            fits = np.cumsum(sizes) <= ROOM
            n = int(fits.sum())
            self.read.append(sentence.words[:n])
            data += [[size, k, n - 1 - k] if k < n and size else [0, 0, 0] for k, size in enumerate(sizes)]
            covered += [bool(fit and size) for fit, size in zip(fits, sizes, strict=True)]
        if not all(covered):
            warnings.warn(UncoveredWordsWarning("not read"), stacklevel=2)
        offsets = np.cumsum([0, *map(len, sentences)])
        return Embeddings(np.array(data, dtype=np.float32).reshape(-1, 3), offsets, np.array(covered))


def test_every_word_has_the_vector_of_the_window_with_most_context():
    rng = np.random.default_rng(0)
    texts = [[f"w{size}" for size in rng.integers(1, 5, size=n)] for n in (0, 3, 9, 17, 30)]
    found = encode_long(Short(), Sentences.of(texts, "en"))
    assert found.covered is None
    for number, text in enumerate(texts):
        sizes = [int(word[1:]) for word in text]
        windows, start, end = [], 0, 0
        while end < len(text):
            n = int((np.cumsum(sizes[start:]) <= ROOM).sum())
            if start + n > end:
                windows.append((start, start + n))
                start, end = (start + start + n) // 2, start + n
            else:
                start = end
        for k, (size, left, right) in enumerate(found[number].tolist()):
            having = [(a, b) for a, b in windows if a <= k < b]
            best = max(min(k - a, b - 1 - k) for a, b in having)
            assert (size, min(left, right)) == (sizes[k], best)


@pytest.mark.filterwarnings("error")
def test_short_texts_are_read_once():
    encoder = Short()
    encode_long(encoder, Sentences.of([["w3", "w7"], ["w1"]], "en"))
    assert encoder.read == [("w3", "w7"), ("w1",)]


def test_words_that_cannot_be_read_do_not_stop_the_others():
    texts = [["w0", "w4", "w0"], ["w4", "w11", "w4", "w0", "w9", "w9", "w3"], ["w11"]]
    with pytest.warns(UncoveredWordsWarning, match="5 of 11 words have no vector, not even alone"):
        found = encode_long(Short(), Sentences.of(texts, "en"))
    assert found.covered is not None
    assert found.covered.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0]
    assert found.data[:, 0].tolist() == [0, 4, 0, 4, 0, 4, 0, 9, 9, 3, 0]


def test_a_model_reads_what_is_beyond_its_limit(tiny_folder):
    text = ["the", "cat", "sees", "a", "house", "in", "the", "harbour"] * 5
    short, whole = (load_encoder(tiny_folder, max_length=length) for length in (20, None))
    found, once = (encode_long(each, Sentences.of([text, text[:2]], "en")) for each in (short, whole))
    assert found.covered is None
    np.testing.assert_allclose(found[1], once[1], atol=1e-5)
    assert np.abs(found[0] - once[0]).max() > 1e-3  # words see what is in their window, not the whole text
    with pytest.warns(UncoveredWordsWarning):
        assert short.encode(Sentences.of([text], "en")).covered is not None
