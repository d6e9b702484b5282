"""Enhanced sequential inference model (ESIM), which compares two texts word by word and then pools
the result.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from calque.nn.matched import MatchedSentences, attention
from calque.nn.pooling import maxima, means
from calque.nn.ragged import Ragged
from calque.nn.recurrent import StackedLSTM


class ESIM(nn.Module):
    """Classifier for text pairs: the sequential model of Chen et al. (2017), "Enhanced LSTM for
    natural language inference", §3.

        ā = BiLSTM(a),  b̄ = BiLSTM(b)                                          input encoding
        e_ij = ā_i · b̄_j                                                       local inference
        ã_i = Σ_j softmax_j(e_ij) b̄_j,   b̃_j = Σ_i softmax_i(e_ij) ā_i
        m_a = [ā; ã; ā − ã; ā ⊙ ã],   m_b likewise
        v_a = BiLSTM(relu(F m_a)),   v_b = BiLSTM(relu(F m_b))                  composition
        v = [mean v_a; max v_a; mean v_b; max v_b]                             pooling
        scores = U tanh(W v)

    The encoder's vectors replace the word embeddings. Unlike a mean or a bag of words, the model is
    sensitive to word order, because two LSTMs process the vectors in order. If a text has no
    vectors, its mean and maxima are 0, and ã = 0 for the words of the other text.

    Dropout is applied as in the authors' code (github.com/lukecq1231/nli): to the input vectors, to
    the projection, and before and after the hidden layer.

    Args:
        hidden: size of both LSTMs per direction, of the projection F and of the hidden layer W.

    Example:
        >>> esim = ESIM(8, 3, hidden=5, dropout=0.0)
        >>> esim(torch.randn(9, 8), torch.tensor([4, 1, 2, 2])).shape
        torch.Size([2, 3])
    """

    def __init__(self, dim: int, n_labels: int, *, hidden: int, dropout: float):
        super().__init__()
        self.encoding = StackedLSTM(dim, hidden, 1)
        self.projection = nn.Linear(4 * self.encoding.out_dim, hidden)
        self.composition = StackedLSTM(hidden, hidden, 1)
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(4 * self.composition.out_dim, hidden),
            nn.Tanh(),
            nn.Dropout(dropout),
            nn.Linear(hidden, n_labels),
        )

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """Return label scores, `[n_pairs, n_labels]`.

        Args:
            rows: concatenated vectors of all texts, float `[n_rows, dim]`.
            lengths: number of rows in each text, int64 `[2 * n_pairs]`; the first texts of all
                pairs precede the second texts.
        """
        ragged = Ragged.of(lengths, len(rows))
        states = self.encoding(self.dropout(rows), ragged)
        aligned = soft_alignment(states, ragged)
        compared = torch.cat([states, aligned, states - aligned, states * aligned], dim=1)
        composed = self.composition(self.dropout(self.projection(compared).relu()), ragged)
        texts = torch.cat([means(composed, lengths), maxima(composed, lengths)], dim=1)
        return self.dense(torch.cat(texts.chunk(2), dim=1))


def soft_alignment(rows: Tensor, lengths: Tensor | Ragged) -> Tensor:
    """Return, for each row, the mean of the other text's rows, weighted by the softmax of their dot
    products with the row (Chen et al. 2017, §3.2), `[n_rows, dim]`, or zero if the other text has
    no rows. The arguments are those of `ESIM.forward`.
    """
    ragged = Ragged.of(lengths, len(rows))
    first, second = ragged.lengths.reshape(2, -1)
    both = (first > 0) & (second > 0)
    if not both.any():
        return torch.zeros_like(rows)
    matched = torch.from_numpy(np.flatnonzero(np.tile(both, 2)[ragged.sentence])).to(rows.device)
    pairs = MatchedSentences(first[both], second[both], device=rows.device)
    a, b = rows.index_select(0, matched).split([pairs.n_keys, pairs.n_queries])
    aligned = torch.cat([attention(b, a, pairs.swapped()), attention(a, b, pairs)])
    return torch.zeros_like(rows).index_copy(0, matched, aligned)
