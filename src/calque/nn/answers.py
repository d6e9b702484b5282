"""Where an answer begins and ends: scores of the words of a passage, their losses, and the best run of words."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from calque.nn.esim import soft_alignment
from calque.nn.pooling import maxima
from calque.nn.recurrent import StackedLSTM


class MatchedEnds(nn.Module):
    """Passage and question compared word by word, for vectors that know nothing of each other. It is the first half of ESIM
    (Chen et al. 2017, §3.1 to 3.3) with ends in place of the pooled vector; attention from the passage to the question alone
    and a second LSTM over the passage are what BiDAF (Seo et al. 2017) does, too.

        p̄ = BiLSTM(p),  q̄ = BiLSTM(q)                        one LSTM for both
        p̃_i = Σ_j softmax_j(p̄_i · q̄_j) q̄_j
        m = [p̄; p̃; p̄ − p̃; p̄ ⊙ p̃; max q̄]
        first, last = W BiLSTM(relu(F m))

    Args:
        hidden: of either LSTM in each direction, and of the projection.
        dropout: on the rows, on the projection, and before the last layer.

    Example:
        >>> head = MatchedEnds(8, hidden=5, dropout=0.0)
        >>> head(torch.randn(9, 8), torch.tensor([4, 1, 2, 2])).shape  # passages of 4 and 1 words, questions of 2 and 2
        torch.Size([5, 2])
    """

    def __init__(self, dim: int, *, hidden: int, dropout: float):
        super().__init__()
        self.encoding = StackedLSTM(dim, hidden, 1)
        self.projection = nn.Linear(5 * self.encoding.out_dim, hidden)
        self.composition = StackedLSTM(hidden, hidden, 1)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(self.composition.out_dim, 2)

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """Scores of the words of the passages as the first and as the last of the answer.

        Args:
            rows: float `[n_rows, dim]`, those of all passages, then those of all questions.
            lengths: int64 `[2 * n]`, rows of each passage, then of each question; none may be 0.

        Returns:
            `[n_words, 2]`, of the passages' words.
        """
        n = len(lengths) // 2
        n_words = int(lengths[:n].sum())
        states = self.encoding(self.dropout(rows), lengths)
        aligned = soft_alignment(states, lengths)[:n_words]
        asked = maxima(states[n_words:], lengths[n:])
        own = states[:n_words]
        whole = asked.repeat_interleave(lengths[:n].to(rows.device), dim=0)
        compared = torch.cat([own, aligned, own - aligned, own * aligned, whole], dim=1)
        composed = self.composition(self.dropout(self.projection(compared).relu()), lengths[:n])
        return self.out(self.dropout(composed))


def end_losses(scores: Tensor, owner: Tensor, words: Tensor, right: Tensor) -> Tensor:
    """Cross-entropy of the first and of the last word of the right answers, their mean, `[n]`.

    The softmax of a question is over the words of its passage (Devlin et al. 2019, §4.2).

    Args:
        scores: float `[n_rows, 2]`.
        owner: int64 `[n_rows]`, the question that each row is for.
        words: int64 `[n_rows]`, which word of its passage each row is.
        right: int64 `[n, 2]`, first and last word of each right answer; 0 is the loss of a question where it is in no row, as
            of one without an answer (−1).
    """
    n = len(right)
    total = scores.new_zeros(n)
    for side in range(2):
        column = scores[:, side]
        hit = words == right[owner, side]
        told = torch.zeros(n, dtype=torch.bool, device=scores.device).index_fill(0, owner[hit], True)
        everything, answer = _log_sums(column, owner, n), _log_sums(column[hit], owner[hit], n)
        total = total + torch.where(told, everything - answer, 0.0) / 2
    return total


def _log_sums(values: Tensor, owner: Tensor, n: int) -> Tensor:
    """Logarithm of the sum of exponentials for each owner, `[n]`; 0 for one without values."""
    top = values.new_zeros(n).scatter_reduce(0, owner, values.detach(), "amax", include_self=False)
    sums = values.new_zeros(n).index_add(0, owner, (values - top[owner]).exp())
    return top + torch.where(sums > 0, sums, 1.0).log()


def best_ends(scores: np.ndarray, owner: np.ndarray, n: int, most: int) -> np.ndarray:
    """Return the best run of words for each question: the greatest sum of the scores of its ends over all runs of at most
    `most` words. Exact: each length is tried for all words at once. Of equal runs the one that begins first is taken, then
    the shortest.

    Args:
        scores: float `[n_rows, 2]`.
        owner: int64 `[n_rows]`, for which question each row is; rows of one stand together and in order.
        most: words of an answer at most.

    Returns:
        int64 `[n, 2]`, first and last row; −1 for a question without rows.
    """
    first, last = scores[:, 0], scores[:, 1]
    best, length = first + last, np.zeros(len(scores), dtype=np.int64)
    for more in range(1, min(most, len(scores))):
        together = owner[:-more] == owner[more:]
        if not together.any():
            break
        sums = np.where(together, first[:-more] + last[more:], -np.inf)
        better = sums > best[:-more]
        best[:-more][better], length[:-more][better] = sums[better], more
    top = np.full(n, -np.inf)
    np.maximum.at(top, owner, best)
    rows = np.flatnonzero(best == top[owner])
    questions, which = np.unique(owner[rows], return_index=True)
    found = np.full((n, 2), -1, dtype=np.int64)
    found[questions] = np.stack([rows[which], rows[which] + length[rows[which]]], axis=1)
    return found
