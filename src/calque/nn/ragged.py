"""Batches of sentences with different lengths, concatenated without padding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from calque.errors import SettingError
from calque.offsets import offsets_of, ranges


class Ragged:
    """Layout of the concatenated sentences of a batch.

    In time-major order, words are sorted by their position in the sentence. Words at the same
    position are sorted by the length of their sentence, longest first. Sentences that have not
    ended therefore come first in the block of the previous position, as in PyTorch's
    PackedSequence. Empty sentences are omitted.

    Args:
        lengths: number of words in each sentence, int64 `[n_sentences]`.

    Attributes:
        lengths, offsets: number of words and start of each sentence, int64 `[n_sentences]` and
            `[n_sentences + 1]`.
        n_words: total number of words.

    Example:
        >>> ragged = Ragged([2, 0, 3])
        >>> ragged.sizes, ragged.from_left.tolist(), ragged.from_right.tolist()
        ([2, 2, 1], [2, 0, 3, 1, 4], [4, 1, 3, 0, 2])
    """

    def __init__(self, lengths: np.ndarray | Sequence[int]):
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self.offsets = offsets_of(self.lengths)
        self.n_words = int(self.offsets[-1])

    @classmethod
    def of(cls, lengths: Tensor | Ragged, n_words: int) -> Ragged:
        """Convert sentence lengths, int64 `[n_sentences]`, preferably on the CPU, to `Ragged`;
        return a `Ragged` unchanged.

        Raises:
            SettingError: the lengths do not add up to `n_words`.
        """
        ragged = lengths if isinstance(lengths, Ragged) else cls(lengths.cpu().numpy())
        if ragged.n_words != n_words:
            raise SettingError(f"lengths must add up to {n_words} words, got {ragged.n_words}")
        return ragged

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def order(self) -> np.ndarray:
        """Indices of the non-empty sentences, longest first, int64 `[n_filled]`."""
        return np.argsort(-self.lengths, kind="stable")[: np.count_nonzero(self.lengths)]

    @cached_property
    def sizes(self) -> list[int]:
        """Number of sentences that have a word at each position."""
        # at_least[t]: number of sentences with at least t words
        at_least = np.bincount(self.lengths)[::-1].cumsum()[::-1]
        return at_least[1:].tolist()

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Sentence index and position in the sentence of each word, in time-major order."""
        sizes = np.array(self.sizes, dtype=np.int64)
        # At each position, the sentences that have not ended are the first ones of `order`.
        sentence = self.order[ranges(np.zeros_like(sizes), sizes)]
        return sentence, np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def from_left(self) -> np.ndarray:
        """Word indices in time-major order, int64 `[n_words]`."""
        sentence, step = self._places
        return self.offsets[sentence] + step

    @cached_property
    def from_right(self) -> np.ndarray:
        """Word indices in the time-major order of the reversed sentences, int64 `[n_words]`."""
        sentence, step = self._places
        return self.offsets[sentence + 1] - 1 - step

    @cached_property
    def sentence(self) -> np.ndarray:
        """Index of each word's sentence, int64 `[n_words]`."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def position(self) -> np.ndarray:
        """Position of each word in its sentence, counted from 0, int64 `[n_words]`."""
        return np.arange(self.n_words) - np.repeat(self.offsets[:-1], self.lengths)


class SentenceDropout(nn.Module):
    """Dropout for word vectors, `[n_words, dim]`, with probability `p` and one mask for all words
    of a sentence (Gal & Ghahramani 2016, "A theoretically grounded application of dropout in
    recurrent neural networks").
    """

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise SettingError(f"dropout must be at least 0 and below 1, got {p}")
        self.p = p

    def forward(self, x: Tensor, lengths: Tensor | Ragged) -> Tensor:
        if not self.training or self.p == 0:
            return x
        ragged = Ragged.of(lengths, len(x))
        mask = torch.empty(len(ragged), x.shape[1], dtype=x.dtype, device=x.device)
        mask.bernoulli_(1 - self.p).div_(1 - self.p)
        return x * mask[torch.from_numpy(ragged.sentence).to(x.device)]
