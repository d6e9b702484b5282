"""Sentences split into subwords, with the positions of their words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calque.offsets import offsets_of, ranges


@dataclass(frozen=True)
class SplitSentences:
    """Sentences as flat arrays of subwords.

    Attributes:
        ids: subword ids, including the special tokens around each sentence, int32 `[n_subwords]`.
        offsets: offsets of the sentences in `ids`, int64 `[n_sentences + 1]`.
        word_offsets: offsets of the sentences in `word_starts` and `word_lengths`, int64
            `[n_sentences + 1]`.
        word_starts: position of each word's first subword in its sentence, int32 `[n_words]`.
        word_lengths: number of subwords of each word, or 0 for a word without a vector, int32
            `[n_words]`.
        truncated_words: number of words removed by the length limit.
        empty_words: number of words that the tokenizer drops, such as control characters.
        truncated_sentences: number of sentences truncated by the length limit.
        pad_id: id of the padding token.
        segments: segment (token type) of each subword in a pair of texts, int32 `[n_subwords]`;
            None if all are 0.
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
        return len(self.offsets) - 1

    @property
    def n_words(self) -> int:
        return len(self.word_lengths)

    @property
    def lengths(self) -> np.ndarray:
        """Number of subwords in each sentence, including special tokens, int64 `[n_sentences]`."""
        return np.diff(self.offsets)

    @property
    def covered(self) -> np.ndarray:
        """Mask of the words with a vector, bool `[n_words]`."""
        return self.word_lengths > 0

    @classmethod
    def joined(cls, parts: Iterable[SplitSentences]) -> SplitSentences:
        """Concatenate the sentences of all parts, and add up the counts of truncated and empty
        words.
        """
        parts = list(parts)
        if not parts:
            none = np.zeros(0, np.int32)
            return cls(none, offsets_of(none), offsets_of(none), none, none)
        return cls(
            ids=np.concatenate([part.ids for part in parts]),
            offsets=offsets_of(np.concatenate([part.lengths for part in parts])),
            word_offsets=offsets_of(np.concatenate([np.diff(part.word_offsets) for part in parts])),
            word_starts=np.concatenate([part.word_starts for part in parts]),
            word_lengths=np.concatenate([part.word_lengths for part in parts]),
            truncated_words=sum(part.truncated_words for part in parts),
            empty_words=sum(part.empty_words for part in parts),
            truncated_sentences=sum(part.truncated_sentences for part in parts),
            pad_id=parts[0].pad_id,
            segments=_joined_segments(parts),
        )

    def take(self, numbers: np.ndarray) -> SplitSentences:
        """Return the sentences at the given indices. The counts of truncated and empty words are
        copied unchanged.
        """
        lengths, counts = self.lengths[numbers], np.diff(self.word_offsets)[numbers]
        subwords = ranges(self.offsets[numbers], lengths)
        words = ranges(self.word_offsets[numbers], counts)
        segments = None if self.segments is None else self.segments[subwords]
        return replace(
            self,
            ids=self.ids[subwords],
            offsets=offsets_of(lengths),
            word_offsets=offsets_of(counts),
            word_starts=self.word_starts[words],
            word_lengths=self.word_lengths[words],
            segments=segments,
        )

    def covered_words(self) -> SplitSentences:
        """Return the sentences reduced to words that have a vector. The counts of truncated and
        empty words do not change.
        """
        covered = self.covered
        return replace(
            self,
            word_offsets=offsets_of(covered)[self.word_offsets],
            word_starts=self.word_starts[covered],
            word_lengths=self.word_lengths[covered],
        )

    def each_subword(self) -> SplitSentences:
        """Return the sentences with each subword, including special tokens, as a word."""
        starts = np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], self.lengths)
        return replace(
            self,
            word_offsets=self.offsets,
            word_starts=starts.astype(np.int32),
            word_lengths=np.ones_like(self.ids),
        )

    def with_special(self) -> SplitSentences:
        """Return the sentences with their first and last subwords, such as [CLS] and [SEP], as
        additional words.
        """
        n, counts = len(self), np.diff(self.word_offsets)
        word_offsets = self.word_offsets + 2 * np.arange(n + 1)
        # index of each word among all words and special tokens
        inner = np.arange(self.n_words) + 2 * np.repeat(np.arange(n), counts) + 1
        starts = np.zeros(self.n_words + 2 * n, dtype=np.int32)
        lengths = np.ones_like(starts)
        starts[inner], lengths[inner] = self.word_starts, self.word_lengths
        starts[word_offsets[1:] - 1] = np.diff(self.offsets) - 1  # the first special tokens keep 0
        return replace(self, word_offsets=word_offsets, word_starts=starts, word_lengths=lengths)


def _joined_segments(parts: Sequence[SplitSentences]) -> np.ndarray | None:
    """Return the segments of all subwords, int32 `[n_subwords]`, or None if all are 0."""
    if all(part.segments is None for part in parts):
        return None
    segments = []
    for part in parts:
        segments.append(np.zeros_like(part.ids) if part.segments is None else part.segments)
    return np.concatenate(segments)
