"""Pooling functions that reduce the concatenated vectors of several texts to one vector per
text.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
