"""Biaffine scorers for dependency parsing, which score arcs and arc labels for pairs of words."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.nn.ragged import Ragged, SentenceDropout


class MLP(nn.Module):
    """Projection of word vectors for one role (head or dependent): `dropout(ELU(W x + b))` (Dozat &
    Manning 2017, "Deep biaffine attention for neural dependency parsing", eqs. 4–5).

    The ELU activation follows the parser of Schuster et al. (2019); Dozat & Manning use a leaky
    ReLU.

    Args:
        dropout: dropout rate after the activation, with one mask per sentence.

    Example:
        >>> MLP(8, 5)(torch.randn(7, 8), torch.tensor([4, 3])).shape
        torch.Size([7, 5])
    """

    def __init__(self, dim: int, out: int, dropout: float = 0.0):
        super().__init__()
        self.linear = nn.Linear(dim, out)
        self.dropout = SentenceDropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Project vectors `[n_words, dim]` to `[n_words, out]`; `lengths` is int64
        `[n_sentences]`.
        """
        return self.dropout(F.elu(self.linear(x)), lengths)


class Biaffine(nn.Module):
    """Bilinear scorer with linear terms, which scores each class for a pair of vectors (Dozat &
    Manning 2017, eqs. 3 and 6).

        score_k(x, y) = xᵀ U_k y + u_k · y  [+ v_k · x + b_k, if bias_right]

    The score is computed as `[x; 1]ᵀ W_k [y; 1]`; the second 1 is omitted if `bias_right` is false.
    Arc scores (eq. 6) have only the linear term of the head y, which is a prior for y being a head.
    Label scores (eq. 3) have all terms.

    `arcs` scores all word pairs of a sentence, which is the only step that needs padding. `labels`
    scores each word with only
    one head: the gold head during training, or the predicted head at test time.

    Args:
        left, right: dimensions of x and of y.
        out: number of classes, which is 1 for arcs.
        bias_right: whether to append a 1 to y.

    Attributes:
        weight: W, `[out, left + 1, right (+ 1)]`, initialised to 0, so all pairs have equal scores
            before training.

    Example:
        >>> arc, label = Biaffine(5, 5, 1, bias_right=False), Biaffine(3, 3, 4)
        >>> lengths, heads = torch.tensor([2, 3]), torch.tensor([0, 1, 2, 0, 2])
        >>> arc.arcs(torch.randn(5, 5), torch.randn(6, 5), lengths).shape
        torch.Size([2, 3, 4])
        >>> label.labels(torch.randn(5, 3), torch.randn(6, 3), heads, lengths).shape
        torch.Size([5, 4])
    """

    def __init__(self, left: int, right: int, out: int, bias_right: bool = True):
        super().__init__()
        self.out, self.bias_right = out, bias_right
        self.weight = nn.Parameter(torch.zeros(out, left + 1, right + bias_right))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the scores, `[n, out]`, of each row of `left`, `[n, left]`, with the same row of
        `right`, `[n, right]`.
        """
        left, right = _with_one(left, True), _with_one(right, self.bias_right)
        # One matrix product for all classes, [n, right] by [out * left, right], is faster than n
        # small products.
        projected = F.linear(right, self.weight.flatten(0, 1))
        projected = projected.view(len(left), self.out, left.shape[1])  # W_k [y; 1]
        return (projected * left[:, None]).sum(2)

    def arcs(self, dependents: Tensor, heads: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Score the root and every word of a sentence as the head of each word in the sentence.

        Args:
            dependents: vectors of the words as dependents, `[n_words, left]`.
            heads: vector of the root, then vectors of the words, as heads, `[n_words + 1, right]`.
            lengths: number of words in each sentence, int64 `[n_sentences]`.

        Returns:
            scores, `[n_sentences, longest, longest + 1]`. As in `algebra.trees`, row `i` is the
            i-th word, column 0 is the root, and column `j` is the j-th word, counted from 1.
            Padding columns are −inf, and the remaining columns of padding rows are 0. Each word
            also has a score as its own head.
        """
        ragged = Ragged.of(lengths, len(dependents))
        longest, device = int(ragged.lengths.max(initial=0)), dependents.device
        projected = _with_one(dependents, True) @ self.weight[0]  # [x; 1]ᵀ W
        sentence = torch.from_numpy(ragged.sentence).to(device)
        position = torch.from_numpy(ragged.position).to(device)
        queries = projected.new_zeros(len(ragged), longest, projected.shape[1])
        queries = queries.index_put((sentence, position), projected)
        # Rows of the heads in the padded layout; padding points to the root and is masked below.
        places, offsets = torch.arange(longest + 1), torch.from_numpy(ragged.offsets[:-1, None])
        inside = places <= torch.from_numpy(ragged.lengths[:, None])
        rows = (offsets + places).where(inside & (places > 0), 0)
        candidates = F.embedding(rows.to(device), _with_one(heads, self.bias_right))
        return (queries @ candidates.mT).masked_fill(~inside[:, None].to(device), -torch.inf)

    def labels(
        self, dependents: Tensor, heads: Tensor, chosen: Tensor, lengths: Tensor | Ragged
    ) -> Tensor:
        """Score every class for each word with its chosen head.

        Args:
            dependents, heads, lengths: see `arcs`.
            chosen: position of each word's head in its sentence, counted from 1, or 0 for the root,
                int `[n_words]`.

        Returns:
            scores, `[n_words, out]`.
        """
        ragged = Ragged.of(lengths, len(dependents))
        begin = torch.from_numpy(ragged.offsets[:-1][ragged.sentence]).to(chosen.device)
        rows = (begin + chosen).where(chosen > 0, 0).to(heads.device)
        return self(dependents, F.embedding(rows, heads))


def _with_one(x: Tensor, wanted: bool) -> Tensor:
    return F.pad(x, (0, 1), value=1.0) if wanted else x
