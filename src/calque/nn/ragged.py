"""Sentences of different lengths in one batch: all words in a row, no padding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from calque.errors import SettingError
from calque.offsets import offsets_of, ranges


class Ragged:
    """Where the sentences of a batch lie when their words stand in a row.

    Step by step (time-major), the words are ordered by their position: the first words of all sentences, then the second
    ones, the longest sentence always first. So at each step the sentences that still run are the first rows of a block,
    as in PyTorch's PackedSequence; sentences without words do not occur.

    Args:
        lengths: int64 `[n_sentences]`.

    Attributes:
        lengths, offsets: int64 `[n_sentences]` and `[n_sentences + 1]`.
        n_words: in all sentences.

    Example:
        >>> ragged = Ragged([2, 0, 3])
        >>> ragged.sizes, ragged.from_left.tolist(), ragged.from_right.tolist()
        ([2, 2, 1], [2, 0, 3, 1, 4], [4, 1, 3, 0, 2])
    """

    def __init__(self, lengths: np.ndarray | Sequence[int]):
        self.lengths = np.asarray(lengths, dtype=np.int64)
        if self.lengths.ndim != 1 or (len(self.lengths) and self.lengths.min() < 0):
            raise SettingError(f"lengths {self.lengths.tolist()}, expected a number of words for each sentence")
        self.offsets = offsets_of(self.lengths)
        self.n_words = int(self.offsets[-1])

    @classmethod
    def of(cls, lengths: Tensor | Ragged, n_words: int) -> Ragged:
        """From a tensor, int64 `[n_sentences]`; on the CPU it is ready at once. What is known already is passed through.

        Raises:
            SettingError: the lengths do not add up to `n_words`.
        """
        ragged = lengths if isinstance(lengths, Ragged) else cls(lengths.cpu().numpy())
        if ragged.n_words != n_words:
            raise SettingError(f"lengths that add up to {ragged.n_words} for {n_words} words")
        return ragged

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def order(self) -> np.ndarray:
        """Sentences that have words, long before short, int64 `[n_filled]`."""
        return np.argsort(-self.lengths, kind="stable")[: np.count_nonzero(self.lengths)]

    @cached_property
    def sizes(self) -> list[int]:
        """How many sentences still run at each step."""
        running = np.bincount(self.lengths)[::-1].cumsum()[::-1]  # [t]: sentences of t words or more
        return running[1:].tolist()

    @cached_property
    def steps(self) -> tuple[np.ndarray, np.ndarray]:
        """For each place in the time-major order: rank of its sentence in `order`, and its step."""
        sizes = np.array(self.sizes, dtype=np.int64)
        step = np.repeat(np.arange(len(sizes)), sizes)
        return ranges(np.zeros_like(sizes), sizes), step

    @cached_property
    def from_left(self) -> np.ndarray:
        """The word at each place when the sentences are read forwards, int64 `[n_words]`."""
        rank, step = self.steps
        return self.offsets[self.order[rank]] + step

    @cached_property
    def from_right(self) -> np.ndarray:
        """The word at each place when every sentence is read backwards from its own end, int64 `[n_words]`."""
        rank, step = self.steps
        return self.offsets[self.order[rank] + 1] - 1 - step

    @cached_property
    def sentence(self) -> np.ndarray:
        """The sentence of each word, int64 `[n_words]`."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def position(self) -> np.ndarray:
        """The place of each word in its sentence, from 0, int64 `[n_words]`."""
        return np.arange(self.n_words) - np.repeat(self.offsets[:-1], self.lengths)


class SentenceDropout(nn.Module):
    """Dropout that takes the same components from all words of a sentence (Gal & Ghahramani 2016, "A theoretically
    grounded application of dropout in recurrent neural networks").

    Args:
        p: fraction of the components that is zeroed; the others are multiplied by 1 / (1 − p).

    Shape: `[n_words, dim]` to the same.
    """

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise SettingError(f"dropout={p}, expected a share of at least 0 and below 1")
        self.p = p

    def forward(self, x: Tensor, lengths: Tensor | Ragged) -> Tensor:
        if not self.training or self.p == 0:
            return x
        ragged = Ragged.of(lengths, len(x))
        mask = torch.empty(len(ragged), x.shape[1], dtype=x.dtype, device=x.device).bernoulli_(1 - self.p)
        return x * mask.div_(1 - self.p)[torch.from_numpy(ragged.sentence).to(x.device)]
