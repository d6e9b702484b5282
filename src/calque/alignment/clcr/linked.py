"""What links say of the words of one language: which are key points, and in which order the other language has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.vectors import Embeddings


def linked_words(embeddings: Embeddings, pairs: WordPairs) -> np.ndarray:
    """Whether each word has a vector and is the source word of a link, bool `[n_words]`.

    Raises:
        SettingError: links of other sentences.
    """
    linked = np.zeros(embeddings.n_words, dtype=bool)
    linked[_rows(embeddings, pairs)] = True
    return linked if embeddings.covered is None else linked & embeddings.covered


@dataclass(frozen=True)
class LinkedOrder:
    """The key points of each sentence, and the order of the words that they are linked to.

    Attributes:
        chosen: bool `[n_words]`, the words that are key points; none in sentences that have too few to be ordered.
        positions: int64 `[K]`, of each key point in its sentence.
        ranks: int64 `[K]`, its place among those of its sentence in the other language, from 0.
        lengths: int64 `[n_sentences]`, key points of each sentence.
        skipped: links that are not one to one, links to a word without a vector, and sentences with one key point or none.
    """

    chosen: np.ndarray
    positions: np.ndarray
    ranks: np.ndarray
    lengths: np.ndarray
    skipped: dict[str, int]

    @classmethod
    def of(cls, embeddings: Embeddings, pairs: WordPairs) -> LinkedOrder:
        """From vectors of the source language and links to the other.

        Raises:
            SettingError: links of other sentences.
        """
        _rows(embeddings, pairs)  # whatever becomes of them, they must be of these sentences
        single = pairs.one_to_one()
        rows = _rows(embeddings, single)
        kept = np.ones(len(rows), dtype=bool) if embeddings.covered is None else embeddings.covered[rows]
        lengths = np.bincount(single.sentence[kept], minlength=len(embeddings))
        skipped = {
            "links_not_one_to_one": len(pairs) - len(single),
            "links_without_vector": int((~kept).sum()),
            "sentences_with_fewer_than_2_key_points": int((lengths < 2).sum()),
        }
        single = single.select(kept & (lengths[single.sentence] >= 2))
        single = single.select(np.lexsort((single.source, single.sentence)))
        lengths = np.where(lengths < 2, 0, lengths)
        chosen = np.zeros(embeddings.n_words, dtype=bool)
        chosen[embeddings.rows(single.sentence, single.source)] = True
        ranks = np.empty(len(single), dtype=np.int64)
        by_target = np.lexsort((single.target, single.sentence))
        ranks[by_target] = np.arange(len(single)) - np.repeat(offsets_of(lengths)[:-1], lengths)
        return cls(chosen, single.source, ranks, lengths, skipped)


def _rows(embeddings: Embeddings, pairs: WordPairs) -> np.ndarray:
    """Row of the source word of each link."""
    if pairs.n_sentences != len(embeddings):
        raise SettingError(f"links of {pairs.n_sentences} sentence pairs for vectors of {len(embeddings)} sentences")
    beyond = np.flatnonzero(pairs.source >= np.diff(embeddings.offsets)[pairs.sentence])
    if len(beyond):
        sentence, word = int(pairs.sentence[beyond[0]]), int(pairs.source[beyond[0]])
        words = len(embeddings[sentence])
        raise SettingError(
            f"a link to word {word} (from 0) of sentence {sentence}, which has {words}; swapped languages?"
        )
    return embeddings.rows(pairs.sentence, pairs.source)
