"""Questions and the passages that they are about in one sequence, long passages in windows that overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from calque.encoders.split import SplitSentences
from calque.encoders.subwords import Piece, frame_of, framed
from calque.offsets import offsets_of, ranges

if TYPE_CHECKING:
    from calque.encoders.subwords import Subwords
    from calque.text import Sentences


@dataclass(frozen=True)
class PairWindows:
    """Questions, each with a part of its passage behind it: one window or several for every question.

    Attributes:
        split: the windows as subwords; their words are those of the passages alone.
        counts: int64 `[n_questions]`, windows of each question, at least one.
        first: int64 `[n_windows]`, which word of its passage is a window's first.
        cut_questions: how many questions lost subwords.
        unread: of how many questions no word of the passage fits a window.
    """

    split: SplitSentences
    counts: np.ndarray
    first: np.ndarray
    cut_questions: int = 0
    unread: int = 0
    truncated_sentences: ClassVar[int] = 0  # what does not fit a window is in the next

    def __len__(self) -> int:
        """Number of questions."""
        return len(self.counts)

    @classmethod
    def joined(cls, parts: Sequence[PairWindows]) -> PairWindows:
        """The questions of all parts, one part after the other."""
        return cls(
            SplitSentences.joined([part.split for part in parts]), np.concatenate([part.counts for part in parts]),
            np.concatenate([part.first for part in parts]), sum(part.cut_questions for part in parts),
            sum(part.unread for part in parts),
        )  # fmt: skip

    def take(self, numbers: np.ndarray) -> PairWindows:
        """Some of the questions, by their numbers. What was lost is still counted over all of them."""
        windows = ranges(offsets_of(self.counts)[:-1][numbers], self.counts[numbers])
        return replace(
            self, split=self.split.take(windows), counts=self.counts[numbers], first=self.first[windows]
        )  # fmt: skip


def pair_windows(
    subwords: Subwords,
    questions: Sentences,
    passages: Sentences,
    owner: np.ndarray,
    *,
    stride: int = 128,
    most_question: int = 64,
    segments: bool = False,
) -> PairWindows:
    """Pairs as BERT reads them for SQuAD (Devlin et al. 2019, `run_squad.py`): the question, then as much of the passage as
    there is room for; what does not fit is in further windows, each of which begins `stride` subwords behind the one before.

    Windows begin and end with whole words. They overlap by half or more of their room: a shorter room has a shorter stride.
    A word that fits no window has no vector.

    Args:
        subwords: the tokenizer, with the limit of a sequence.
        questions: `[n]`.
        passages: each once.
        owner: int64 `[n]`, the passage of each question.
        stride: see above.
        most_question: subwords of a question; what is over is cut off.
        segments: the model tells the two texts apart by segment embeddings.
    """
    frame = frame_of(subwords.tokenizer, 2)
    asked, read = subwords.split(questions, whole=True), subwords.split(passages, whole=True)
    ends, n_special = offsets_of(read.word_lengths), len(subwords.prefix) + len(subwords.suffix)
    sizes, limit = asked.lengths - n_special, subwords.max_length
    room = np.full(len(sizes), int(ends[-1]) + 1, dtype=np.int64)
    kept = np.minimum(sizes, most_question)
    if limit is not None:
        inside = limit - sum(map(len, frame.special))
        kept = np.minimum(kept, inside // 2)
        room = inside - kept
    known: dict[tuple[int, int], list[tuple[int, int]]] = {}
    found: list[tuple[int, int]] = []
    counts = np.zeros(len(owner), dtype=np.int64)
    for number, key in enumerate(zip(owner.tolist(), room.tolist(), strict=True)):
        if key not in known:
            first, last = read.word_offsets[key[0]], read.word_offsets[key[0] + 1]
            known[key] = windows(ends[first : last + 1], key[1], stride)
        found += known[key]
        counts[number] = len(known[key])
    spans = np.array(found, dtype=np.int64).reshape(-1, 2)
    question = np.repeat(np.arange(len(owner)), counts)
    passage = owner[question]
    # Words of each window among those of all passages, and subwords among those of all, without the special ones.
    start, stop = (read.word_offsets[passage] + spans[:, side] for side in (0, 1))
    begin, end = ends[start], ends[stop]
    before = read.offsets[passage] + len(subwords.prefix) - ends[read.word_offsets[passage]]
    ids, kinds, offsets = framed(
        frame,
        [Piece(asked.ids, asked.offsets[question] + len(subwords.prefix), kept[question]),
         Piece(read.ids, before + begin, end - begin)],
    )  # fmt: skip
    subwords.put_languages(ids, offsets, passages.lang)
    n_words = stop - start
    words = ranges(start, n_words)
    lengths = read.word_lengths[words]
    lead = kept[question] + len(frame.special[0]) + len(frame.special[1])
    places = ends[words] + np.repeat(lead - begin, n_words)
    split = SplitSentences(
        ids, offsets, offsets_of(n_words), np.where(lengths > 0, places, 0).astype(np.int32), lengths,
        empty_words=read.empty_words, pad_id=read.pad_id, segments=kinds if segments and kinds.any() else None,
    )  # fmt: skip
    unread = int((np.bincount(question, weights=lengths_of(n_words, lengths), minlength=len(owner)) == 0).sum())
    return PairWindows(split, counts, spans[:, 0], int((kept < sizes).sum()), unread)


def lengths_of(n_words: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Subwords of the words of each window, int64 `[n_windows]`."""
    ends = offsets_of(lengths)
    return np.diff(ends[offsets_of(n_words)])


def windows(ends: np.ndarray, room: int, stride: int) -> list[tuple[int, int]]:
    """Where the windows of a passage begin and end, as words; a single empty one where no word fits.

    Args:
        ends: int64 `[n_words + 1]`, subwords before each word, and of all.
        room: most subwords of a window.
        stride: subwords between the beginnings of two windows, at most half the room.
    """
    stride, n = max(1, min(stride, room // 2)), len(ends) - 1
    found: list[tuple[int, int]] = []
    start = end = 0
    while end < n:
        reached = int(np.searchsorted(ends, ends[start] + room, side="right")) - 1
        if reached > end:
            found.append((start, reached))
            following = int(np.searchsorted(ends, ends[start] + stride))
            start, end = min(max(following, start + 1), reached), reached
        elif start < end:  # the next word is too long for a window that begins before it
            start = end
        else:  # and for one of its own
            start = end = end + 1
    return found or [(0, 0)]
