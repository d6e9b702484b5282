"""Small artificial parallel text with links, and the parameters of a tiny BERT that have no gradient."""

import numpy as np

from calque.pairs import WordPairs
from calque.text import ParallelCorpus

WORDS = ["the", "cat", "sees", "a", "house", "of", "time", "and", "water", "in"]


def make_text(lang: str, n: int, seed: int) -> tuple[ParallelCorpus, WordPairs]:
    """Return sentences translated by their reversed words in capitals, with some words unlinked."""
    rng = np.random.default_rng(seed)
    source = [[WORDS[i] for i in rng.integers(0, 10, rng.integers(3, 9))] for _ in range(n)]
    target = [[word.upper() for word in reversed(words)] for words in source]
    links = [(k, i, len(w) - 1 - i) for k, w in enumerate(source) for i in range(len(w)) if rng.random() < 0.7]
    k, i, j = np.array(links).T
    return ParallelCorpus.of(source, target, ("en", lang)), WordPairs(k, i, j, n_sentences=n)


def cancels(name: str) -> bool:
    """Return whether the gradient of a weight of the tiny BERT is 0 except for rounding, which Adam scales up to full steps.

    The bias of a key adds the same number to all scores of a query, which the softmax cancels. The bias of the last layer norm is
    added to both words of a pair, so their difference does not depend on it.

    """
    return "key.bias" in name or name == "encoder.layer.2.output.LayerNorm.bias"
