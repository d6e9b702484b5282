"""What of parallel text training learns from: sentences as subwords, and the sentence pairs and links that are usable.

All of it goes block by block into arrays that are mapped files where the text is long (`calque.storage`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from calque.encoders.split import SplitSentences
from calque.encoders.trainable import TrainableEncoder
from calque.pairs import WordPairs
from calque.storage import filled, taken
from calque.text import ParallelCorpus, Sentences

_SENTENCES = 1 << 14  # that are cut into subwords at a time


@dataclass
class Counts:
    """What preparation left out, for the record."""

    sentence_pairs: int = 0
    links: int = 0
    too_long: int = 0
    without_links: int = 0
    links_without_vector: int = 0
    truncated_words: int = 0
    special_pairs: int = 0
    languages: list[str] = field(default_factory=list)


def split_texts(encoder: TrainableEncoder, texts: Sequence[Sentences]) -> Iterator[SplitSentences]:
    """All sentences of some texts as the encoder reads them, a part after the other."""
    for text in texts:
        for start in range(0, len(text), _SENTENCES):
            yield encoder.split(text[start : start + _SENTENCES])


def with_vectors(
    pairs: WordPairs, table: SplitSentences, bases: tuple[int, int], counts: Counts, *, special: bool
) -> WordPairs:
    """The links of which both words have vectors; the others are counted.

    Args:
        pairs: of a corpus.
        table: all sentences.
        bases: the numbers there of the first source sentence of the corpus, and of the first target sentence.
        counts: is changed.
        special: the first and last subword of each sentence are words of the table.
    """

    def covered(some: slice) -> np.ndarray:
        found = np.ones(some.stop - some.start, dtype=bool)
        for base, words in zip(bases, (pairs.source, pairs.target), strict=True):
            first = table.word_offsets[base + pairs.sentence[some]] + special
            found &= table.word_lengths[first + words[some]] > 0
        return found

    kept = pairs.select(filled(len(pairs), bool, covered))
    counts.links_without_vector += len(pairs) - len(kept)
    return kept


def usable_pairs(
    corpus: ParallelCorpus, pairs: WordPairs, max_words: int | None, counts: Counts, *, special: bool
) -> tuple[np.ndarray, WordPairs]:
    """Numbers of the sentence pairs to train on, and their links; whatever is left out is counted.

    Args:
        corpus, pairs: text and links.
        max_words: of the longer side; None for no limit.
        counts: is changed.
        special: both ends of a sentence are linked, too.
    """
    longest = np.maximum(corpus.source.lengths(), corpus.target.lengths())
    short = np.ones(len(corpus), dtype=bool) if max_words is None else longest <= max_words
    linked = np.zeros(len(corpus), dtype=bool)
    linked[pairs.sentence] = True
    counts.too_long += int((~short).sum())
    counts.without_links += int((short & ~linked).sum())
    keep = np.flatnonzero(short & linked)
    pairs = pairs.select(filled(len(pairs), bool, lambda some: short[pairs.sentence[some]]))
    counts.sentence_pairs += len(keep)
    counts.links += len(pairs)
    counts.special_pairs += 2 * special * len(keep)
    return keep, pairs


def renumbered(pairs: WordPairs, kept: np.ndarray) -> WordPairs:
    """Links of some sentence pairs, whose numbers `kept` has, by their places there."""
    number = np.full(pairs.n_sentences, -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    sentence = taken(number, pairs.sentence)
    return WordPairs(sentence, pairs.source, pairs.target, n_sentences=len(kept), posterior=pairs.posterior)
