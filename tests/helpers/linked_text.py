"""Parallel text with links, small and made up, and what of a tiny BERT has no gradient."""

import numpy as np

from calque.pairs import WordPairs
from calque.text import ParallelCorpus

WORDS = ["the", "cat", "sees", "a", "house", "of", "time", "and", "water", "in"]


def make_text(lang: str, n: int, seed: int) -> tuple[ParallelCorpus, WordPairs]:
    """Sentences whose partner is their mirror image in capitals, with some words left unlinked."""
    rng = np.random.default_rng(seed)
    source = [[WORDS[i] for i in rng.integers(0, 10, rng.integers(3, 9))] for _ in range(n)]
    target = [[word.upper() for word in reversed(words)] for words in source]
    links = [(k, i, len(w) - 1 - i) for k, w in enumerate(source) for i in range(len(w)) if rng.random() < 0.7]
    k, i, j = np.array(links).T
    return ParallelCorpus.of(source, target, ("en", lang)), WordPairs(k, i, j, n_sentences=n)


def cancels(name: str) -> bool:
    """Whether a weight of the tiny BERT has a gradient of 0 but for rounding, which Adam blows up to whole steps.

    A key's bias adds the same to all scores of a query, which softmax does not see. The bias of the last layer's norm
    is the same in both words of a pair, so their difference does not have it.
    """
    return "key.bias" in name or name == "encoder.layer.2.output.LayerNorm.bias"
