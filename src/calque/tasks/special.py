"""The special subwords at both ends of a sentence ([CLS], [SEP]) as linked words, as Cao et al.'s code counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.text import Sentences


def with_ends(encoder: Encoder, sentences: Sentences) -> Embeddings:
    """Word vectors, and those of a sentence's first and last subword ([CLS], [SEP]) as words around them.

    Raises:
        SettingError: the encoder has no subwords.
    """
    from calque.encoders.huggingface import HuggingFaceEncoder
    from calque.training.sources import vectors_of

    if not isinstance(encoder, HuggingFaceEncoder):
        raise SettingError(f"special=True: {encoder.name} has no special subwords")
    split = encoder.subwords.split(sentences).with_special()
    vectors = vectors_of(encoder, split, budget=encoder.budget)
    return Embeddings(vectors.data, split.word_offsets, split.covered)


def with_end_links(
    pairs: WordPairs, unseen: np.ndarray | None, source: Embeddings, target: Embeddings
) -> tuple[WordPairs, np.ndarray | None]:
    """The links, moved past the first special word, and links between the first and the last ones."""
    n = pairs.n_sentences
    sentence = np.concatenate([pairs.sentence, np.arange(n), np.arange(n)])
    order = np.argsort(sentence, kind="stable")
    ends = [np.concatenate([np.zeros(n, dtype=np.int64), np.diff(side.offsets) - 1]) for side in (source, target)]
    left, right = (
        np.concatenate([words + 1, end]) for words, end in zip((pairs.source, pairs.target), ends, strict=True)
    )
    if unseen is not None:
        unseen = np.concatenate([unseen, np.zeros(2 * n, dtype=bool)])[order]
    return WordPairs(sentence[order], left[order], right[order], n_sentences=n), unseen
