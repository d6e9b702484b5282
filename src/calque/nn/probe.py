"""Edge probing: classifiers that score the labels of spans or of pairs of spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.nn.pooling import owners


class SpanRows(NamedTuple):
    """Spans of words, stored as indices of the rows that contain their vectors.

    Attributes:
        rows: concatenated row indices of all spans, int64 `[N]`, in any order; spans may share
            rows.
        lengths: number of rows in each span, int64 `[T]`.
    """

    rows: Tensor
    lengths: Tensor


class SpanPooling(nn.Module):
    """Self-attentive pooling of the projected word vectors in a span (Tenney et al. 2019b, §3.1,
    after Lee et al. 2017, "End-to-end neural coreference resolution").

        e_i = A h_i + b,    a_i = exp(w·e_i) / Σ_{j in span} exp(w·e_j),    r = Σ_{i in span} a_i
        e_i

    Each word is scored only once, even if several spans contain it. Spans are not padded.

    Args:
        width: dimension of e and r.
    """

    def __init__(self, dim: int, width: int):
        super().__init__()
        self.project = nn.Linear(dim, width)
        self.attention = nn.Linear(width, 1, bias=False)  # a bias would cancel in the softmax

    def forward(self, words: Tensor, spans: SpanRows) -> Tensor:
        """Pool word vectors, `[W, dim]`, into span vectors, `[T, width]`. Each span must contain at
        least one row.
        """
        if not len(spans.lengths):
            return words.new_zeros(0, self.project.out_features)
        device, rows = words.device, spans.rows.to(words.device)
        projected = self.project(words)
        owner = owners(spans.lengths, device)
        scores = F.embedding(rows, self.attention(projected))[:, 0]
        # Subtract the maximum of each span to prevent the exponential from overflowing.
        highest = scores.detach().new_zeros(len(spans.lengths))
        highest = highest.scatter_reduce(0, owner, scores.detach(), "amax", include_self=False)
        raised = (scores - highest[owner]).exp()
        sums = torch.zeros_like(highest).index_add(0, owner, raised)
        starts = (spans.lengths.cumsum(0) - spans.lengths).to(device)
        return F.embedding_bag(
            rows, projected, starts, mode="sum", per_sample_weights=raised / sums[owner]
        )


class Probe(nn.Module):
    """Classifier for spans or pairs of spans (Tenney et al. 2019b, §3.1).

    First and second spans are projected to `width` dimensions and pooled with separate weights. The
    concatenated span vectors are the input of a multilayer perceptron, `Linear, tanh, LayerNorm,
    Dropout, Linear`, as in the authors' code (jiant, `simple_modules.Classifier`). The paper calls
    this perceptron a "two-layer MLP". Each label is predicted independently, with probability
    sigmoid(score).

    Args:
        spans: number of spans in a target, 1 or 2.

    Example:
        >>> probe = Probe(8, 3, spans=2, width=6, hidden=5, dropout=0.0)
        >>> words = SpanRows(torch.tensor([0, 1, 2]), torch.tensor([2, 1]))
        >>> heads = SpanRows(torch.tensor([3, 3]), torch.tensor([1, 1]))
        >>> probe(torch.randn(4, 8), [words, heads]).shape
        torch.Size([2, 3])
    """

    def __init__(
        self, dim: int, n_labels: int, *, spans: int, width: int, hidden: int, dropout: float
    ):
        super().__init__()
        self.pools = nn.ModuleList(SpanPooling(dim, width) for _ in range(spans))
        self.classify = nn.Sequential(
            nn.Linear(spans * width, hidden),
            nn.Tanh(),
            nn.LayerNorm(hidden),
            nn.Dropout(dropout),
            nn.Linear(hidden, n_labels),
        )

    def forward(self, rows: Tensor, spans: Sequence[SpanRows]) -> Tensor:
        """Return label scores, `[T, n_labels]`.

        Args:
            rows: vectors of all words, `[W, dim]`.
            spans: first spans of all targets and, if targets are pairs of spans, second spans.
        """
        pooled = [pool(rows, of_pool) for pool, of_pool in zip(self.pools, spans, strict=True)]
        return self.classify(torch.cat(pooled, dim=1))

    @staticmethod
    def losses(scores: Tensor, gold: Tensor) -> Tensor:
        """Return each target's binary cross-entropy, summed over labels, `[T]`; both arguments are
        `[T, n_labels]`.
        """
        return F.binary_cross_entropy_with_logits(scores, gold.to(scores), reduction="none").sum(1)
