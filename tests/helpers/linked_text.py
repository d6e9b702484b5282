"""Small artificial parallel text with word links."""

import numpy as np

from calque.pairs import WordPairs
from calque.text import ParallelCorpus

WORDS = ["the", "cat", "sees", "a", "house", "of", "time", "and", "water", "in"]


def make_text(lang: str, n: int, seed: int) -> tuple[ParallelCorpus, WordPairs]:
    """Return sentences whose translation reverses the words and writes them in capitals; some words
    are unlinked.
    """
    rng = np.random.default_rng(seed)
    source = [[WORDS[i] for i in rng.integers(0, 10, rng.integers(3, 9))] for _ in range(n)]
    target = [[word.upper() for word in reversed(words)] for words in source]
    links = [
        (k, i, len(w) - 1 - i)
        for k, w in enumerate(source)
        for i in range(len(w))
        if rng.random() < 0.7
    ]
    k, i, j = np.array(links).T
    return ParallelCorpus.of(source, target, ("en", lang)), WordPairs(k, i, j, n_sentences=n)


def numbered_text(n: int, length: int = 6) -> tuple[ParallelCorpus, WordPairs]:
    """Return sentences of random words `e0` to `e29` and their word-by-word translations: `d7`
    translates `e7`.
    """
    drawn = np.random.default_rng(0).integers(0, 30, (n, length))
    sides = ([[f"{letter}{k}" for k in row] for row in drawn] for letter in "ed")
    return ParallelCorpus.of(*sides, ("en", "de")), WordPairs.of(
        [[(k, k) for k in range(length)]] * n
    )
