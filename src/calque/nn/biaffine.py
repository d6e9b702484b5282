"""Scores of word pairs for dependency parsing: heads and their relations."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.nn.ragged import Ragged, SentenceDropout


class MLP(nn.Module):
    """Projection of word vectors for one role, head or dependent (Dozat & Manning 2017, "Deep biaffine attention for
    neural dependency parsing", eqs. 4–5): `dropout(ELU(W x + b))`.

    ELU is used as in Schuster et al.'s (2019) parser; Dozat & Manning use a leaky ReLU.

    Args:
        dropout: fraction of the components zeroed after the activation, the same for all words of a sentence.

    Example:
        >>> MLP(8, 5)(torch.randn(7, 8), torch.tensor([4, 3])).shape
        torch.Size([7, 5])
    """

    def __init__(self, dim: int, out: int, dropout: float = 0.0):
        super().__init__()
        self.linear = nn.Linear(dim, out)
        self.dropout = SentenceDropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Project `[n_words, dim]` to `[n_words, out]`; lengths are int64 `[n_sentences]`."""
        return self.dropout(F.elu(self.linear(x)), lengths)


class Biaffine(nn.Module):
    """Bilinear score of each class, with linear terms of each side (Dozat & Manning 2017, eqs. 3 and 6).

        score_k(x, y) = xᵀ U_k y + u_k · y  [+ v_k · x + b_k, if bias_right]

    It is computed as `[x; 1]ᵀ W_k [y; 1]`, without the second 1 unless `bias_right`. Arcs (eq. 6) have only the term of the
    head y, which gives each word a prior of being a head; labels (eq. 3) have all terms.

    `arcs` scores all pairs of words inside a sentence, and only these scores need padding. `labels` scores each word
    with one head only: the gold head in training, the head in the tree at inference.

    Args:
        left, right: dimensions of the two sides' vectors.
        out: number of classes; 1 for arcs.
        bias_right: append a 1 to the vectors of the right side.

    Attributes:
        weight: `[out, left + 1, right (+ 1)]`, initially 0, so all pairs have equal scores before training.

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
        """Score given pairs row by row: `[n, left]` and `[n, right]` to `[n, out]`."""
        left, right = _with_one(left, True), _with_one(right, self.bias_right)
        # One product for all classes, [n, right] with [out * left, right]; a sum of products beats n small ones.
        moved = F.linear(right, self.weight.flatten(0, 1)).view(len(left), self.out, left.shape[1])
        return (moved * left[:, None]).sum(2)

    def arcs(self, dependents: Tensor, heads: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Score every word of a sentence, and the root, as the head of each of its words.

        Args:
            dependents: vectors of the words as dependents, `[n_words, left]`.
            heads: vectors of the root and then of the words as heads, `[n_words + 1, right]`.
            lengths: number of words of each sentence, int64 `[n_sentences]`.

        Returns:
            `[n_sentences, longest, longest + 1]`: row `i` is the i-th word, column 0 the root, column `j` the j-th
            word, counted from 1, as in `algebra.trees`. Columns beyond the end of the sentence are −inf; other columns
            of rows beyond the end are 0. A word also has a score as its own head.
        """
        ragged = Ragged.of(lengths, len(dependents))
        longest, device = int(ragged.lengths.max(initial=0)), dependents.device
        moved = _with_one(dependents, True) @ self.weight[0]
        sentence, position = (torch.from_numpy(part).to(device) for part in (ragged.sentence, ragged.position))
        queries = moved.new_zeros(len(ragged), longest, moved.shape[1]).index_put((sentence, position), moved)
        places, offsets = torch.arange(longest + 1), torch.from_numpy(ragged.offsets[:-1, None])
        inside = places <= torch.from_numpy(ragged.lengths[:, None])
        rows = (offsets + places).where(inside & (places > 0), 0)  # padding is the root, which is masked below
        candidates = F.embedding(rows.to(device), _with_one(heads, self.bias_right))
        return (queries @ candidates.mT).masked_fill(~inside[:, None].to(device), -torch.inf)

    def labels(self, dependents: Tensor, heads: Tensor, chosen: Tensor, lengths: Tensor | Ragged) -> Tensor:
        """Score every class for each word and its head.

        Args:
            dependents, heads, lengths: as in `arcs`.
            chosen: head of each word, int `[n_words]`: 0 for the root, else the position of a word of its sentence,
                from 1.

        Returns:
            `[n_words, out]`.
        """
        ragged = Ragged.of(lengths, len(dependents))
        begin = torch.from_numpy(ragged.offsets[:-1][ragged.sentence]).to(chosen.device)
        rows = (begin + chosen).where(chosen > 0, 0).to(heads.device)
        return self(dependents, F.embedding(rows, heads))


def _with_one(x: Tensor, wanted: bool) -> Tensor:
    return F.pad(x, (0, 1), value=1.0) if wanted else x
