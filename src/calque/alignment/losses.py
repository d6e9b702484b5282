"""What is minimised where words are told apart: over similarities of vectors, whoever they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from calque.nn.contrast import contrast
from calque.nn.divergence import row_divergence
from calque.nn.similarities import similarities

Same = Literal["negative", "ignored", "one", "each"]


def info_nce(
    x: Tensor,
    y: Tensor,
    *,
    temperature: float | Tensor,
    strong: bool,
    kinds: Tensor | None = None,
    same: Mapping[Same, float] = MappingProxyType({"each": 1.0}),
) -> Tensor:
    """Mean over both directions of the cross entropy of each row's partner among all candidates.

    Args:
        x, y: unit rows `[n, dim]`; row k of one translates row k of the other. Without any the loss is 0.
        temperature: what similarities are divided by.
        strong: the other rows of the anchor's own side are candidates too.
        kinds: int64 `[n]`; rows of one kind, but −1, are equal; None: no two are.
        same: what rows that are equal are to each other, see `Contrastive`, and the share of each answer in the loss.
    """
    if not len(x):
        return (x.sum() + y.sum()) * 0.0
    across = similarities(x, y) / temperature
    if not strong and across.device.type == "cpu" and across.dtype == torch.float32:
        return contrast(across, kinds, same)
    own = torch.eye(len(x), dtype=torch.bool, device=x.device)
    equal = own if kinds is None else own | ((kinds[:, None] == kinds) & (kinds >= 0))
    left, right = (similarities(rows, rows) / temperature if strong else None for rows in (x, y))
    return sum(
        0.5 * share * (_cross_entropy(across, left, own, equal, how) + _cross_entropy(across.T, right, own, equal, how))
        for how, share in same.items()
        if share
    )  # type: ignore[return-value]


def _cross_entropy(scores: Tensor, beside: Tensor | None, own: Tensor, equal: Tensor, same: Same) -> Tensor:
    """Mean over the rows of −log of the share that the partners have.

    Args:
        scores: `[n, n]` of each row with the other side's; its own partner's on the diagonal.
        beside: the same with the rows of its own side, if they are candidates.
        own, equal: bool `[n, n]`, the diagonal, and rows that are equal.
        same: see `Contrastive`.
    """
    if same == "negative":
        equal = own
    partners = own if same == "ignored" else equal
    total = scores.masked_fill(equal & ~partners, -torch.inf).logsumexp(1)
    if beside is not None:
        total = torch.logaddexp(total, beside.masked_fill(equal, -torch.inf).logsumexp(1))
    if same == "one":
        return (total - scores.masked_fill(~partners, -torch.inf).logsumexp(1)).mean()
    if same == "each":
        return (total - (scores * (partners / partners.sum(1, keepdim=True))).sum(1)).mean()
    return (total - scores.diagonal()).mean()


def neighbours_lost(now: Tensor, before: Tensor, *, temperature: float) -> Tensor:
    """How far each row's neighbours are from what they were.

    With q_ij and p_ij the softmax over j ≠ i of cosine(i, j)/τ now and before it is the mean over i of the divergence
    Σ_j p_ij log(p_ij / q_ij): 0 where the similarities stay as they were, whatever becomes of the vectors (relational
    distillation, after Park et al. 2019, and Fang et al. 2021, "SEED", Eq. 3).

    Args:
        now, before: `[n, dim]`, the same words; fewer than three have no neighbours that could change.
        temperature: τ.
    """
    if len(now) < 3:
        return now.sum() * 0.0
    cosines = [
        similarities(rows, rows) / temperature for rows in (functional.normalize(each, dim=1) for each in (now, before))
    ]
    return row_divergence(*cosines)
