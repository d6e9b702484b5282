"""Pooling functions that reduce the concatenated vectors of several texts to one vector per
text.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

#: how the vectors of a word's subwords become one vector
Pooling = Literal["last", "first", "mean"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)


def owners(lengths: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """Return the index of each row's text, int64 `[W]`, given the number of rows in each text."""
    return torch.repeat_interleave(torch.arange(len(lengths)), lengths.cpu()).to(device)


def sums(rows: Tensor, lengths: Tensor) -> Tensor:
    """Return the sum of the rows of each text, `[S, dim]`."""
    zeros = rows.new_zeros(len(lengths), rows.shape[1])
    return zeros.index_add(0, owners(lengths, rows.device), rows)


def means(rows: Tensor, lengths: Tensor) -> Tensor:
    """Return the mean of the rows of each text, `[S, dim]`, or zero for a text without rows."""
    return sums(rows, lengths) / lengths.clamp(min=1).to(rows.device)[:, None]


def maxima(rows: Tensor, lengths: Tensor) -> Tensor:
    """Return the maximum of each column over the rows of each text, `[S, dim]`, or zero for a text
    without rows.
    """
    owner = owners(lengths, rows.device)[:, None].expand_as(rows)
    zeros = rows.new_zeros(len(lengths), rows.shape[1])
    return zeros.scatter_reduce(0, owner, rows, "amax", include_self=False)


def word_means(flat: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
    """Return the mean of each word's subword vectors, `[W, dim]`, given the concatenated hidden
    states of all subwords.
    """
    if not len(lengths):
        return flat[starts]
    # Each row of `places`, [W, longest word], holds the positions of a word's subwords; padding has
    # weight 0.
    steps = torch.arange(int(lengths.max()), device=flat.device)
    inside = steps < lengths[:, None]
    places = torch.where(inside, starts[:, None] + steps, starts[:, None])
    return (flat[places] * inside[:, :, None]).sum(1) / lengths.clamp(min=1)[:, None]


def pooled_words(flat: Tensor, starts: Tensor, lengths: Tensor, pooling: Pooling) -> Tensor:
    """Return one vector per word, `[W, dim]`, from the concatenated hidden states of all subwords;
    the vector of a word without subwords is zero.

    Args:
        flat: hidden states of all subwords, `[N, dim]`.
        starts: index of each word's first subword in `flat`, int64 `[W]`.
        lengths: number of subwords of each word, int64 `[W]`.
        pooling: "last" or "first" selects one subword of each word, "mean" averages all of them.
    """
    if pooling == "mean":
        return word_means(flat, starts, lengths)
    return flat[chosen_subwords(starts, lengths, pooling)] * (lengths > 0)[:, None]


def chosen_subwords(starts: Tensor, lengths: Tensor, pooling: Pooling) -> Tensor:
    """Return the index of each word's first or last subword, int64 `[W]`."""
    return starts if pooling == "first" else starts + (lengths - 1).clamp(min=0)
