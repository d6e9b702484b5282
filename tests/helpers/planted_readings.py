"""Parallel text, and word vectors that match across languages only at one layer and pooling."""

from __future__ import annotations

import zlib

import numpy as np

from calque.nn.pooling import POOLINGS
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.vectors import Embeddings

DIM = 32


def text(n: int, *, words: int = 400, seed: int = 0) -> tuple[ParallelCorpus, WordPairs]:
    """Return sentence pairs of five words, translated word by word: "w7" is "xw7"."""
    rng = np.random.default_rng(seed)
    source = [[f"w{k}" for k in rng.choice(words, 5, replace=False)] for _ in range(n)]
    target = [[f"x{word}" for word in line] for line in source]
    links = WordPairs.of([[(k, k) for k in range(5)] for _ in range(n)])
    return ParallelCorpus.of(source, target, ("en", "de")), links


def embeddings(sentences: list[np.ndarray]) -> Embeddings:
    """Return the word vectors of sentences, given as one array `[n_words, dim]` for each."""
    data = np.concatenate(sentences).astype(np.float32)
    return Embeddings(data, offsets_of([len(rows) for rows in sentences]))


def vector(word: str, language_noise: float) -> np.ndarray:
    """Return a unit vector of a word and its translation, with noise that differs between them."""
    common = np.random.default_rng(zlib.crc32(word.removeprefix("x").encode()))
    own = np.random.default_rng(zlib.crc32(f"own {word}".encode()))
    mixed = common.standard_normal(DIM) + language_noise * own.standard_normal(DIM)
    return mixed / np.linalg.norm(mixed)


def plant(monkeypatch, layer: int, pooling: str, *, noise: float = 0.5, other: float = 2.5):
    """Let Transformers encoders return vectors with little noise at one layer and pooling, and with
    much noise at all others.
    """

    def encode_readings(self, sentences, layers):
        lists = [list(sentence.words) for sentence in sentences]
        for number in layers:
            for name in POOLINGS:
                amount = noise if (number, name) == (layer, pooling) else other
                rows = [np.array([vector(word, amount) for word in line]) for line in lists]
                yield number, name, embeddings(rows)

    monkeypatch.setattr(
        "calque.encoders.huggingface.HuggingFaceEncoder.encode_readings", encode_readings
    )
