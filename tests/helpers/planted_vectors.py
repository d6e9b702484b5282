"""Text and vectors in two languages, related by a noisy nonlinear map, with different word orders
and unlinked words.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from calque.encoders.base import Encoder
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.vectors import Embeddings


class Known(Encoder):
    """Encoder with a fixed vector per word, and noise that depends on the sentence and the
    position.
    """

    def __init__(self, name: str, table: dict[str, np.ndarray], noise: float):
        self.name, self.table, self.noise = name, table, noise
        self.dim = len(next(iter(table.values())))

    @property
    def fingerprint(self) -> str:
        return f"{self.name} {self.noise}"

    def encode(self, sentences, *, progress=False):
        rows, offsets = [], [0]
        for sentence in sentences:
            seed = int.from_bytes(
                hashlib.blake2b(" ".join(sentence.words).encode(), digest_size=8).digest(), "little"
            )
            noise = (
                np.random.default_rng(seed).standard_normal((len(sentence), self.dim)) * self.noise
            )
            rows += [
                self.table[word] + moved for word, moved in zip(sentence.words, noise, strict=True)
            ]
            offsets.append(len(rows))
        return Embeddings(np.array(rows, dtype=np.float32).reshape(-1, self.dim), np.array(offsets))


@dataclass
class Languages:
    """Encoders and parallel text of two artificial languages.

    Attributes:
        encoders: encoders of `aa` and `bb`.
        corpus: parallel text in `aa` and `bb`.
        links: gold links of the corpus.
    """

    encoders: dict[str, Encoder]
    corpus: ParallelCorpus
    links: WordPairs


def languages(
    n: int = 1200,
    *,
    dims: tuple[int, int] = (24, 20),
    scale: float = 1.0,
    words: int = 120,
    seed: int = 0,
) -> Languages:
    """Generate a text with `n` sentence pairs of 3 to 9 words.

    Args:
        n: number of sentence pairs.
        dims: numbers of dimensions of the vectors of `aa` and `bb`.
        scale: standard deviation of each component; the noise has a fifth of this standard
            deviation.
        words: number of word types in each language.
        seed: random seed.

    """
    rng = np.random.default_rng(seed)
    meaning = rng.standard_normal((words, dims[0]))
    a, b, c = (
        rng.standard_normal(shape) / dims[0] ** 0.5 for shape in (dims, (dims[0], dims[0]), dims)
    )
    other = meaning @ a + 0.7 * np.tanh(2 * meaning @ b) @ c + 0.5
    tables = [
        {f"{letter}{k}": scale * row for k, row in enumerate(rows)}
        for letter, rows in (("a", meaning), ("b", other))
    ]
    sides: tuple[list, list] = ([], [])
    links = []
    for k in range(n):
        chosen = rng.choice(words, rng.integers(3, 10), replace=False)
        kept = [np.flatnonzero(rng.random(len(chosen)) < 0.9) for _ in range(2)]
        kept[1] = rng.permutation(kept[1])
        for side, letter, which in zip(sides, "ab", kept, strict=True):
            side.append([f"{letter}{chosen[w]}" for w in which])
        links += [(k, i, j) for i, w in enumerate(kept[0]) for j, v in enumerate(kept[1]) if w == v]
    encoders: dict[str, Encoder] = {
        lang: Known(lang, table, 0.2 * scale)
        for lang, table in zip(("aa", "bb"), tables, strict=True)
    }
    sentence, i, j = np.array(links).T
    return Languages(
        encoders, ParallelCorpus.of(*sides, ("aa", "bb")), WordPairs(sentence, i, j, n_sentences=n)
    )


def f1(found: WordPairs, right: WordPairs) -> float:
    """Return the F1 of predicted links."""
    keys = [
        set(zip(p.sentence.tolist(), p.source.tolist(), p.target.tolist(), strict=True))
        for p in (found, right)
    ]
    return 2 * len(keys[0] & keys[1]) / (len(keys[0]) + len(keys[1]))
