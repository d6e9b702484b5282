"""Attention within sentence pairs. Sentence pairs with similar lengths are padded and processed
together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from calque.offsets import offsets_of

_PAIRS = 8  # maximum number of sentence pairs in a group
# maximum number of word pairs in a group, including padding; a single sentence pair may exceed this
# limit
_PLACES = 1_000_000


class Side(NamedTuple):
    """Padded layout of one side of a group of sentence pairs.

    Attributes:
        places: row index of each word's vector, int64 `[n, longest]`; padding repeats the first row
            of the sentence.
        held: mask of the positions that contain a word, bool `[n, longest]`.
    """

    places: Tensor
    held: Tensor

    @classmethod
    def of(cls, starts: np.ndarray, lengths: np.ndarray, device: torch.device | str) -> Side:
        """Build the layout from each sentence's first row (`starts`) and number of words
        (`lengths`), int64 `[n]`.
        """
        place = np.arange(int(lengths.max()))
        held = place < lengths[:, None]
        places = starts[:, None] + place * held
        return cls(torch.from_numpy(places).to(device), torch.from_numpy(held).to(device))

    def take(self, rows: Tensor) -> Tensor:
        """Arrange `rows`, `[n_rows, dim]`, in the padded layout, `[n, longest, dim]`."""
        return F.embedding(self.places, rows)


class MatchedSentences:
    """Layout of a batch of sentence pairs; the words of each side are concatenated.

    Args:
        keys, queries: number of words in each key sentence and in each query sentence, int64 `[n]`;
            must be positive.

    Attributes:
        groups: layouts of the keys and of the queries for each group of sentence pairs with similar
            lengths.
        numbers: indices of the sentence pairs in each group, int64 `[n]`.
    """

    def __init__(
        self, keys: np.ndarray, queries: np.ndarray, *, device: torch.device | str = "cpu"
    ):
        keys, queries = np.asarray(keys, dtype=np.int64), np.asarray(queries, dtype=np.int64)
        self.n_keys, self.n_queries = int(keys.sum()), int(queries.sum())
        key_starts, query_starts = offsets_of(keys)[:-1], offsets_of(queries)[:-1]
        self.numbers = _alike(keys, queries)
        self.groups: list[tuple[Side, Side]] = []
        for pairs in self.numbers:
            key_side = Side.of(key_starts[pairs], keys[pairs], device)
            query_side = Side.of(query_starts[pairs], queries[pairs], device)
            self.groups.append((key_side, query_side))

    def swapped(self) -> MatchedSentences:
        """Return the layout with keys and queries swapped."""
        other = object.__new__(type(self))
        other.n_keys, other.n_queries, other.numbers = self.n_queries, self.n_keys, self.numbers
        other.groups = [(queries, keys) for keys, queries in self.groups]
        return other


def attention(
    keys: Tensor,
    queries: Tensor,
    sentences: MatchedSentences,
    *,
    scale: float = 1.0,
    nearest: bool = False,
) -> Tensor:
    """Return, for each query, the weighted mean of the keys in its sentence pair, with the weights

        softmax_i(scale · (q · k_i [− ‖k_i‖² / 2]))

    Args:
        keys: vectors that are both keys and values, `[n_keys, dim]`.
        queries: query vectors, `[n_queries, dim]`.
        sentences: layout of the keys and queries.
        scale: factor by which the scores are multiplied.
        nearest: whether to subtract half the squared norm of each key, which gives the nearest key
            the highest weight.

    Returns:
        weighted means, `[n_queries, dim]`.
    """
    # The empty first parts allow for a batch without sentence pairs.
    means = [0 * queries[:0]]
    places = [torch.zeros(0, dtype=torch.int64, device=queries.device)]
    for of_keys, of_queries in sentences.groups:
        values = of_keys.take(keys)
        scores = of_queries.take(queries) @ values.mT
        if nearest:
            scores = scores - values.square().sum(2)[:, None] / 2
        scores = (scale * scores).masked_fill(~of_keys.held[:, None], -torch.inf)
        means.append((scores.softmax(2) @ values)[of_queries.held])
        places.append(of_queries.places[of_queries.held])
    return torch.zeros_like(queries).index_copy(0, torch.cat(places), torch.cat(means))


def _alike(m: np.ndarray, n: np.ndarray) -> list[np.ndarray]:
    """Group sentence pairs with similar lengths, and limit the number of sentence pairs and of word
    pairs in each group.
    """
    groups: list[list[int]] = []
    longest = 0, 0
    for pair in np.argsort(m + n, kind="stable").tolist():
        longest = max(longest[0], int(m[pair])), max(longest[1], int(n[pair]))
        size = len(groups[-1]) + 1 if groups else 0
        if not groups or size > _PAIRS or size * longest[0] * longest[1] > _PLACES:
            groups.append([])
            longest = int(m[pair]), int(n[pair])
        groups[-1].append(pair)
    return [np.array(group) for group in groups]
