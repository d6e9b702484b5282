"""Answer span prediction: a model that scores the ends of spans, its loss function, and the search
for the best span.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from calque.nn.esim import soft_alignment
from calque.nn.pooling import maxima
from calque.nn.recurrent import StackedLSTM


class MatchedEnds(nn.Module):
    """Model that predicts answer spans by comparing a passage and a question word by word. The word
    vectors of the two texts are computed independently. The model is the first part of ESIM (Chen
    et al. 2017, §3.1 to 3.3), but scores span ends instead of pooling. As in BiDAF (Seo et al.
    2017), passage words attend to question words before a second LSTM.

        p̄ = BiLSTM(p),  q̄ = BiLSTM(q)                        one LSTM for p and q
        p̃_i = Σ_j softmax_j(p̄_i · q̄_j) q̄_j
        m = [p̄; p̃; p̄ − p̃; p̄ ⊙ p̃; max q̄]
        first, last = W BiLSTM(relu(F m))

    Args:
        hidden: hidden size of both LSTMs per direction, and output size of the projection F.
        dropout: dropout rate, applied to the input vectors, to the projection and before the last
            layer.

    Example:
        >>> head = MatchedEnds(8, hidden=5, dropout=0.0)
        >>> head(torch.randn(9, 8), torch.tensor([4, 1, 2, 2])).shape  # passages of 4 and 1 words, questions of 2 words
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
        """Score the words of the passages as the first and as the last word of the answer,
        `[n_words, 2]`.

        Args:
            rows: word vectors of all passages, then of all questions, float `[n_rows, dim]`.
            lengths: number of rows in each passage, then in each question, int64 `[2 * n]`; must be
                positive.
        """
        n = len(lengths) // 2
        n_words = int(lengths[:n].sum())
        states = self.encoding(self.dropout(rows), lengths)
        aligned = soft_alignment(states, lengths)[:n_words]
        questions = maxima(states[n_words:], lengths[n:])
        passages = states[:n_words]
        question_of_word = questions.repeat_interleave(lengths[:n].to(rows.device), dim=0)
        compared = torch.cat(
            [passages, aligned, passages - aligned, passages * aligned, question_of_word], dim=1
        )
        composed = self.composition(self.dropout(self.projection(compared).relu()), lengths[:n])
        return self.out(self.dropout(composed))


def end_losses(scores: Tensor, owner: Tensor, words: Tensor, right: Tensor) -> Tensor:
    """Return the cross-entropy of each gold answer, averaged over its first and its last word,
    `[n]`.

    The softmax for each question is over the words of its passage (Devlin et al. 2019, §4.2).

    Args:
        scores: scores of each row as the first and as the last word of the answer, float `[n_rows,
            2]`.
        owner: index of each row's question, int64 `[n_rows]`.
        words: index of each row's word in its passage, int64 `[n_rows]`.
        right: indices of the first and the last word of each gold answer, or −1 if a question has
            no answer, int64 `[n, 2]`. The loss is 0 for an answer word without a row.
    """
    n = len(right)
    total = scores.new_zeros(n)
    for side in range(2):
        column = scores[:, side]
        is_answer = words == right[owner, side]
        has_answer = torch.zeros(n, dtype=torch.bool, device=scores.device)
        has_answer = has_answer.index_fill(0, owner[is_answer], True)
        # −log softmax = log Σ exp(all words) − log exp(answer word)
        all_words = _log_sums(column, owner, n)
        answer_word = _log_sums(column[is_answer], owner[is_answer], n)
        total = total + torch.where(has_answer, all_words - answer_word, 0.0) / 2
    return total


def _log_sums(values: Tensor, owner: Tensor, n: int) -> Tensor:
    """Return the log-sum-exp of each question's values, `[n]`, or 0 for a question without
    values.
    """
    top = values.new_zeros(n).scatter_reduce(0, owner, values.detach(), "amax", include_self=False)
    sums = values.new_zeros(n).index_add(0, owner, (values - top[owner]).exp())
    return top + torch.where(sums > 0, sums, 1.0).log()


def best_ends(scores: np.ndarray, owner: np.ndarray, n: int, max_words: int) -> np.ndarray:
    """Return, for each question, the span of at most `max_words` words with the largest sum of end
    scores. Ties are resolved in favour of the span that starts first, then of the shortest span.

    Args:
        scores, owner: see `end_losses`. The rows of each question must be contiguous and in order.
        max_words: maximum number of words in an answer.

    Returns:
        first and last row of each span, int64 `[n, 2]`, or −1 for a question without rows.
    """
    first, last = scores[:, 0], scores[:, 1]
    # Score and additional words of the best span that starts at each row, at first one word.
    best, additional = first + last, np.zeros(len(scores), dtype=np.int64)
    for more in range(1, min(max_words, len(scores))):
        same_question = owner[:-more] == owner[more:]
        if not same_question.any():
            break
        sums = np.where(same_question, first[:-more] + last[more:], -np.inf)
        better = sums > best[:-more]
        best[:-more][better] = sums[better]
        additional[:-more][better] = more
    top = np.full(n, -np.inf)
    np.maximum.at(top, owner, best)
    rows = np.flatnonzero(best == top[owner])
    # `np.unique` returns the first of several equally good spans.
    questions, index = np.unique(owner[rows], return_index=True)
    starts = rows[index]
    spans = np.full((n, 2), -1, dtype=np.int64)
    spans[questions] = np.stack([starts, starts + additional[starts]], axis=1)
    return spans
