"""Edge probing: label scores of spans, or of pairs of spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.nn.pooling import owners


class SpanRows(NamedTuple):
    """Spans of words, given as row indices.

    Attributes:
        rows: concatenated row indices of all spans, int64 `[N]`. A row can be in several spans, and the order is free.
        lengths: number of rows of each span, int64 `[T]`.
    """

    rows: Tensor
    lengths: Tensor


class SpanPooling(nn.Module):
    """Self-attentive pooling of the projected word vectors of a span (Tenney et al. 2019b, §3.1, after Lee et al. 2017,
    "End-to-end neural coreference resolution").

        e_i = A h_i + b,    a_i = exp(w·e_i) / Σ_{j in span} exp(w·e_j),    r = Σ_{i in span} a_i e_i

    The score of a word is computed once, even if several spans contain the word. Spans are not padded.

    Args:
        width: dimension of e and r.
    """

    def __init__(self, dim: int, width: int):
        super().__init__()
        self.project = nn.Linear(dim, width)
        self.attention = nn.Linear(width, 1, bias=False)  # a bias would cancel, because it is equal for all words

    def forward(self, words: Tensor, spans: SpanRows) -> Tensor:
        """Pool word vectors, `[W, dim]`, to span vectors, `[T, width]`. A span must contain at least one row."""
        if not len(spans.lengths):
            return words.new_zeros(0, self.project.out_features)
        device, rows = words.device, spans.rows.to(words.device)
        projected = self.project(words)
        owner = owners(spans.lengths, device)
        scores = F.embedding(rows, self.attention(projected))[:, 0]
        # Subtract the maximum of each span, so that the exponential does not overflow.
        highest = scores.detach().new_zeros(len(spans.lengths))
        highest = highest.scatter_reduce(0, owner, scores.detach(), "amax", include_self=False)
        raised = (scores - highest[owner]).exp()
        sums = torch.zeros_like(highest).index_add(0, owner, raised)
        starts = (spans.lengths.cumsum(0) - spans.lengths).to(device)
        return F.embedding_bag(rows, projected, starts, mode="sum", per_sample_weights=raised / sums[owner])


class Probe(nn.Module):
    """Model that computes label scores of spans or pairs of spans (Tenney et al. 2019b, §3.1).

    The first and the second spans have separate projections to `width` dimensions and separate pooling. The concatenated span
    vectors are the input of a perceptron, `Linear, tanh, LayerNorm, Dropout, Linear`, as in the authors' code (jiant,
    `simple_modules.Classifier`); the paper calls it a "two-layer MLP". Each label is predicted independently, with the
    probability sigmoid(score).

    Args:
        spans: number of spans of a target, 1 or 2.

    Example:
        >>> probe = Probe(8, 3, spans=2, width=6, hidden=5, dropout=0.0)
        >>> words = SpanRows(torch.tensor([0, 1, 2]), torch.tensor([2, 1]))
        >>> heads = SpanRows(torch.tensor([3, 3]), torch.tensor([1, 1]))
        >>> probe(torch.randn(4, 8), [words, heads]).shape
        torch.Size([2, 3])
    """

    def __init__(self, dim: int, n_labels: int, *, spans: int, width: int, hidden: int, dropout: float):
        super().__init__()
        self.pools = nn.ModuleList(SpanPooling(dim, width) for _ in range(spans))
        self.classify = nn.Sequential(
            nn.Linear(spans * width, hidden), nn.Tanh(), nn.LayerNorm(hidden), nn.Dropout(dropout),
            nn.Linear(hidden, n_labels),
        )  # fmt: skip

    def forward(self, rows: Tensor, spans: Sequence[SpanRows]) -> Tensor:
        """Return label scores, `[T, n_labels]`.

        Args:
            rows: vectors of all words, `[W, dim]`.
            spans: first spans of all targets, and for pairs of spans also the second spans.
        """
        return self.classify(torch.cat([pool(rows, each) for pool, each in zip(self.pools, spans, strict=True)], dim=1))

    @staticmethod
    def losses(scores: Tensor, gold: Tensor) -> Tensor:
        """Return the sum over labels of each target's binary cross-entropy, `[T]`; both arguments are `[T, n_labels]`."""
        return F.binary_cross_entropy_with_logits(scores, gold.to(scores), reduction="none").sum(1)
