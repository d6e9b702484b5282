"""Sentences cut into subwords, and where their words are among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calque.offsets import offsets_of, ranges
from calque.text import Sentence, Sentences, not_a_string


@dataclass(frozen=True)
class SplitSentences:
    """Sentences as subwords, ragged.

    Attributes:
        ids: int32 `[n_subwords]`, with the special subwords at both ends of each sentence.
        offsets: int64 `[n_sentences + 1]` into `ids`.
        word_offsets: int64 `[n_sentences + 1]` into the two arrays below.
        word_starts: int32 `[n_words]`, position of the word's first subword in its own sentence's ids.
        word_lengths: int32 `[n_words]`, number of subwords; 0 for a word that has no vector.
        truncated_words: how many words have none because they lie beyond the length limit.
        empty_words: how many have none because the tokenizer maps them to nothing (control characters, say).
        truncated_sentences: how many sentences lost a word to the limit.
        pad_id: the subword that fills up a batch.
        segments: int32 `[n_subwords]`, to which text of a pair each belongs (`token_type_ids`); None where all are 0.
    """

    ids: np.ndarray
    offsets: np.ndarray
    word_offsets: np.ndarray
    word_starts: np.ndarray
    word_lengths: np.ndarray
    truncated_words: int = 0
    empty_words: int = 0
    truncated_sentences: int = 0
    pad_id: int = 0
    segments: np.ndarray | None = None

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.offsets) - 1

    @property
    def n_words(self) -> int:
        return len(self.word_lengths)

    @property
    def lengths(self) -> np.ndarray:
        """Subwords of each sentence, special ones included, int64 `[n_sentences]`."""
        return np.diff(self.offsets)

    @property
    def covered(self) -> np.ndarray:
        """bool `[n_words]`: the word has a vector."""
        return self.word_lengths > 0

    @classmethod
    def joined(cls, parts: Iterable[SplitSentences]) -> SplitSentences:
        """The sentences of all parts, one part after the other, with what all of them lost."""
        parts = list(parts)
        names = ("ids", "word_starts", "word_lengths")
        whole: dict[str, Any] = {
            name: np.concatenate([np.zeros(0, np.int32), *(getattr(part, name) for part in parts)]) for name in names
        }
        if any(part.segments is not None for part in parts):
            segments = [np.zeros_like(part.ids) if part.segments is None else part.segments for part in parts]
            whole["segments"] = np.concatenate(segments)
        lost = ("truncated_words", "empty_words", "truncated_sentences")
        nothing = np.zeros(0, np.int64)
        return cls(
            offsets=offsets_of(np.concatenate([nothing, *(part.lengths for part in parts)])),
            word_offsets=offsets_of(np.concatenate([nothing, *(np.diff(part.word_offsets) for part in parts)])),
            **{name: sum(getattr(part, name) for part in parts) for name in lost},
            pad_id=parts[0].pad_id if parts else 0, **whole,
        )  # fmt: skip

    def take(self, numbers: np.ndarray) -> SplitSentences:
        """Some of the sentences, by their numbers. What was lost is still counted over all of them."""
        sizes, counts = self.lengths[numbers], np.diff(self.word_offsets)[numbers]
        subwords, words = ranges(self.offsets[numbers], sizes), ranges(self.word_offsets[numbers], counts)
        return replace(
            self, ids=self.ids[subwords], offsets=offsets_of(sizes), word_offsets=offsets_of(counts),
            word_starts=self.word_starts[words], word_lengths=self.word_lengths[words],
            segments=None if self.segments is None else self.segments[subwords],
        )  # fmt: skip

    def covered_words(self) -> SplitSentences:
        """The same sentences without the words that have no vector; those are not counted anew."""
        covered = self.covered
        return replace(
            self, word_offsets=offsets_of(covered)[self.word_offsets], word_starts=self.word_starts[covered],
            word_lengths=self.word_lengths[covered],
        )  # fmt: skip

    def with_special(self) -> SplitSentences:
        """The first and last subword of each sentence ([CLS], [SEP]) as words of their own, around the others."""
        n, counts = len(self), np.diff(self.word_offsets)
        word_offsets = self.word_offsets + 2 * np.arange(n + 1)
        inner = np.arange(self.n_words) + 2 * np.repeat(np.arange(n), counts) + 1
        starts = np.zeros(self.n_words + 2 * n, dtype=np.int32)
        lengths = np.ones_like(starts)
        starts[inner], lengths[inner] = self.word_starts, self.word_lengths
        starts[word_offsets[1:] - 1] = np.diff(self.offsets) - 1
        return replace(self, word_offsets=word_offsets, word_starts=starts, word_lengths=lengths)


def number_words(sentences: Iterable[Sentence | Sequence[str]]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Distinct words in the order in which they come, the number of each word's type, and the sentences' offsets."""
    numbers: dict[str, int] = {}
    if isinstance(sentences, Sentences):
        words, offsets = sentences.flat()
        of_chunks = [np.zeros(0, dtype=np.int64)]
        for chunk in words.chunks:
            encoded = chunk.dictionary_encode()
            table = [numbers.setdefault(word, len(numbers)) for word in encoded.dictionary.to_pylist()]
            of_chunks.append(np.array(table, dtype=np.int64)[np.array(encoded.indices)])
        return list(numbers), np.concatenate(of_chunks), offsets
    of_words: list[int] = []
    ends = [0]
    for sentence in sentences:
        words = sentence.words if isinstance(sentence, Sentence) else not_a_string(sentence)
        of_words.extend(numbers.setdefault(word, len(numbers)) for word in words)
        ends.append(len(of_words))
    return list(numbers), np.array(of_words, dtype=np.int64), np.array(ends, dtype=np.int64)


def laid_out(
    pieces: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    word_offsets: np.ndarray,
    prefix: np.ndarray,
    suffix: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sentences out of words that stand anywhere, with special subwords at both ends.

    Args:
        pieces: ids of subwords, int32.
        starts, lengths: int64 `[n_words]`, where in `pieces` each word is.
        word_offsets: int64 `[n_sentences + 1]`.
        prefix, suffix: ids before and after each sentence.

    Returns:
        `ids`, `offsets` and `word_starts` of `SplitSentences`.
    """
    ends = offsets_of(lengths)
    totals = ends[word_offsets[1:]] - ends[word_offsets[:-1]]
    n_special = len(prefix) + len(suffix)
    offsets = offsets_of(totals + n_special)
    ids = np.empty(offsets[-1], dtype=np.int32)
    inside = np.arange(ends[-1])
    place = inside + np.repeat(np.arange(len(totals)) * n_special + len(prefix), totals)
    ids[place] = pieces[inside + np.repeat(starts - ends[:-1], lengths)]
    ids[offsets[:-1, None] + np.arange(len(prefix))] = prefix
    ids[offsets[1:, None] + np.arange(-len(suffix), 0)] = suffix
    word_starts = ends[:-1] - np.repeat(ends[word_offsets[:-1]], np.diff(word_offsets)) + len(prefix)
    return ids, offsets, np.where(lengths > 0, word_starts, 0).astype(np.int32)
