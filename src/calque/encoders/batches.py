"""Batches of sentences with similar lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from calque.encoders.split import SplitSentences
from calque.offsets import offsets_of, ranges


@dataclass(frozen=True)
class WordBatch:
    """A batch of sentences, with the positions of their words.

    Attributes:
        input_ids: subword ids, int64 `[B, T]`.
        attention_mask: mask with 1 for subwords and 0 for padding, int64 `[B, T]`; None if there is
            no padding.
        inside: index of each subword in the flattened batch, int64 `[N]`; None if there is no
            padding.
        spread: index of the subword at each position (arbitrary for padding), int64 `[B * T]`; None
            if there is no padding.
        starts: index of each word's first subword in the flattened batch, int64 `[W]`.
        packed: index of each word's first subword among the N subwords, int64 `[W]`.
        lengths: number of subwords of each word, or 0 for a word without a vector, int64 `[W]`.
        word_counts: number of words in each sentence, int64 `[B]`.
        segments: segment (token type) of each subword in a pair of texts, int64 `[B, T]`; None if
            all segments are 0.
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
        """Number N of subwords, excluding padding."""
        return self.input_ids.numel() if self.inside is None else len(self.inside)

    def to(self, device: torch.device | str) -> WordBatch:
        """Return the batch on another device."""
        moved = {
            name: None if value is None else value.to(device, non_blocking=True)
            for name, value in vars(self).items()
        }
        return replace(self, **moved)


def collate(split: SplitSentences, sentences: np.ndarray) -> WordBatch:
    """Return the sentences at the given indices as one batch, padded on the right.

    A word without a vector gets length 0 and the position of the first subword in its sentence.
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
    """Group sentences of similar length into batches, and return the sentence indices of each batch
    as an int64 array.

    Sentences are sorted by length, longest first, so the first batch needs the most memory.

    Args:
        lengths: number of subwords in each sentence, `[n_sentences]`.
        budget: maximum number of subwords in a batch, including padding; a longer sentence forms a
            batch of its own.
    """
    lengths = np.asarray(lengths)
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        stop = start + max(1, budget // max(1, int(lengths[order[start]])))
        batches.append(order[start:stop])
        start = stop
    return batches
