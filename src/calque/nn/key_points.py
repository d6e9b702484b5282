"""Key points: which words of a sentence stand for the others, from each word's vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calque.errors import SettingError

_AT_ONCE = 1 << 14  # words whose probabilities are computed at once


class KeyPointHead(nn.Module):
    """How probable it is that a word is a key point (CLCR, Eq. 5): sigmoid of

        w · dropout(relu(W dropout(h) + b)) + c

    A word's vector knows its context, so the words are judged one by one.

    Args:
        dim: of the vectors.
        hidden: size of the hidden layer.
        dropout: fraction of the components zeroed, of what comes in and of the hidden layer.

    Attributes:
        settings: what makes the same head again, `KeyPointHead(**settings)`.

    Example:
        >>> KeyPointHead(8, 5)(torch.randn(7, 8)).shape
        torch.Size([7])
    """

    def __init__(self, dim: int, hidden: int = 256, dropout: float = 0.0):
        super().__init__()
        self.settings: dict[str, Any] = {"dim": dim, "hidden": hidden, "dropout": dropout}
        self.hidden, self.out = nn.Linear(dim, hidden), nn.Linear(hidden, 1)
        self.drop = nn.Dropout(dropout)

    def forward(self, rows: Tensor) -> Tensor:
        """Log-odds of being a key point, `[W, dim]` to `[W]`."""
        return self.out(self.drop(torch.relu(self.hidden(self.drop(rows)))))[:, 0]

    @torch.no_grad()
    def probabilities(self, rows: Tensor | np.ndarray) -> np.ndarray:
        """P of each word, float32 `[W]`, without dropout. Rows on disk are read part by part."""
        device, was = self.out.weight.device, self.training
        out = np.empty(len(rows), dtype=np.float32)
        self.eval()
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            part = torch.from_numpy(np.array(part)) if isinstance(part, np.ndarray) else part
            out[start : start + len(part)] = self(part.to(device).float()).sigmoid().cpu().numpy()
        self.train(was)
        return out


def key_points(
    probabilities: np.ndarray, offsets: np.ndarray, threshold: float = 0.2, covered: np.ndarray | None = None
) -> np.ndarray:
    """The words that are key points: those with P > δ, and in a sentence without any its most probable word, the first of
    several; a sentence without words has none.

    Args:
        probabilities: `[n_words]`, the words of all sentences in a row.
        offsets: int64 `[n_sentences + 1]`, where each sentence begins.
        threshold: δ; 0.2 throughout the paper.
        covered: bool `[n_words]`, as of `Embeddings`: a word without a vector is no key point, whatever else there is.

    Returns:
        bool `[n_words]`.

    Raises:
        SettingError: offsets of other words.

    Example:
        >>> key_points(np.array([0.9, 0.1, 0.3, 0.1, 0.15]), np.array([0, 3, 5]))
        array([ True, False,  True, False,  True])
    """
    if offsets[-1] != len(probabilities):
        raise SettingError(f"{len(probabilities)} probabilities for sentences of {offsets[-1]} words")
    usable = np.ones(len(probabilities), dtype=bool) if covered is None else covered
    chosen = (probabilities > threshold) & usable
    counts, kept = (np.concatenate([[0], np.cumsum(mask)])[offsets] for mask in (usable, chosen))
    silent = np.flatnonzero((np.diff(kept) == 0) & (np.diff(counts) > 0))  # sentences that would lose everything
    if len(silent):
        ranked = np.where(usable, probabilities, -np.inf)
        lengths = np.diff(offsets)
        owner = np.repeat(np.arange(len(lengths)), lengths)
        highest = np.full(len(lengths), -np.inf)
        np.maximum.at(highest, owner, ranked)
        equal = np.flatnonzero(usable & (ranked == highest[owner]))
        first = equal[np.unique(owner[equal], return_index=True)[1]]
        chosen[first[np.isin(owner[first], silent)]] = True
    return chosen
