"""Sentences into batches: close in length, no padding where it can be had, all by array operations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from calque.encoders.split import SplitSentences
from calque.offsets import offsets_of, ranges


@dataclass(frozen=True)
class WordBatch:
    """A batch of sentences, and where its words are.

    Attributes:
        input_ids: int64 `[B, T]`.
        attention_mask: int64 `[B, T]`, 1 for a subword; None where nothing is padded.
        inside: int64 `[N]`, flat index into `B * T` of each subword; None where nothing is padded.
        spread: int64 `[B * T]`, for each place the subword there, 0 to N − 1, and any of them for padding; or None.
        starts: int64 `[W]`, flat index into `B * T` of each word's first subword, sentence after sentence.
        packed: int64 `[W]`, the same index, counting subwords only and no padding.
        lengths: int64 `[W]`, subwords of each word; 0 for a word without a vector.
        word_counts: int64 `[B]`, words of each sentence.
        segments: int64 `[B, T]`, to which text of a pair each subword belongs; None where all are 0.
    """

    input_ids: Tensor
    attention_mask: Tensor | None
    inside: Tensor | None
    spread: Tensor | None
    starts: Tensor
    packed: Tensor
    lengths: Tensor
    word_counts: Tensor
    segments: Tensor | None = None

    @property
    def n_subwords(self) -> int:
        """N, padding not counted."""
        return self.input_ids.numel() if self.inside is None else len(self.inside)

    def to(self, device: torch.device | str) -> WordBatch:
        """The same batch on another device."""
        moved = {
            name: None if value is None else value.to(device, non_blocking=True) for name, value in vars(self).items()
        }
        return replace(self, **moved)


def collate(split: SplitSentences, sentences: np.ndarray) -> WordBatch:
    """Sentences, given by their numbers, as one batch padded on the right.

    Words stand in the order of `sentences`. A word without a vector points at the first subword and has length 0.
    """
    sentences = np.asarray(sentences, dtype=np.int64)
    first = split.offsets[sentences]
    lengths = split.offsets[sentences + 1] - first
    width = int(lengths.max()) if len(lengths) else 0
    if (lengths == width).all():
        input_ids, mask = split.ids[first[:, None] + np.arange(width)].astype(np.int64), None
        places = spread = None
    else:
        inside = np.arange(width) < lengths[:, None]
        input_ids = np.full(inside.shape, split.pad_id, dtype=np.int64)
        input_ids[inside] = split.ids[ranges(first, lengths)]
        mask = torch.from_numpy(inside.astype(np.int64))
        places = torch.from_numpy(np.flatnonzero(inside))
        spread = torch.from_numpy(np.maximum(np.cumsum(inside) - 1, 0))
    segments = None
    if split.segments is not None:
        segments = torch.zeros(input_ids.shape, dtype=torch.int64)
        segments.view(-1)[slice(None) if places is None else places] = torch.from_numpy(
            split.segments[ranges(first, lengths)].astype(np.int64)
        )
    first_word = split.word_offsets[sentences]
    counts = split.word_offsets[sentences + 1] - first_word
    words = ranges(first_word, counts)
    within = split.word_starts[words]
    return WordBatch(
        input_ids=torch.from_numpy(input_ids),
        attention_mask=mask,
        inside=places,
        spread=spread,
        starts=torch.from_numpy(within + np.repeat(np.arange(len(sentences)) * width, counts)),
        packed=torch.from_numpy(within + np.repeat(offsets_of(lengths)[:-1], counts)),
        lengths=torch.from_numpy(split.word_lengths[words].astype(np.int64)),
        word_counts=torch.from_numpy(counts),
        segments=segments,
    )


def token_batches(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Group sentences of about equal length into batches of at most `budget` subwords, padding included.

    Sentences are sorted by length, longest first, so that the largest batch comes first and memory that suffices for
    it suffices for all. Within the sorted order a batch ends early, where the length changes, if it is at least half
    full: then nothing in it is padded and it needs no mask.

    Args:
        lengths: subwords of each sentence `[n_sentences]`.
        budget: most subwords of a batch; a sentence longer than that is a batch of its own.

    Returns:
        int64 arrays of sentence numbers; every sentence is in exactly one.
    """
    lengths = np.asarray(lengths)
    order = np.argsort(-lengths, kind="stable")
    sorted_lengths = lengths[order]
    changes = np.flatnonzero(np.diff(sorted_lengths)) + 1
    batches, start = [], 0
    while start < len(order):
        size = max(1, budget // max(1, int(sorted_lengths[start])))
        stop = min(start + size, len(order))
        change = int(np.searchsorted(changes, start, side="right"))  # where the next shorter sentence stands
        if change < len(changes) and start + size / 2 <= changes[change] < stop:
            stop = int(changes[change])
        batches.append(order[start:stop])
        start = stop
    return batches
