"""Contrastive losses over similarities of vectors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Same = Literal["negative", "ignored", "one", "each"]


def info_nce(
    x: Tensor,
    y: Tensor,
    *,
    temperature: float,
    strong: bool,
    kinds: Tensor | None = None,
    same: Mapping[Same, float] = MappingProxyType({"each": 1.0}),
) -> Tensor:
    """Return the mean over both directions of the cross entropy of each row's partner among all candidates.

    Args:
        x, y: unit rows `[n, dim]`; row k of one translates row k of the other. The loss of no rows is 0.
        temperature: what similarities are divided by.
        strong: the other rows of the anchor's own side are candidates too.
        kinds: int64 `[n]`; rows of one kind, except −1, are equal; None: no two are.
        same: what equal rows are to each other, see `Contrastive`, and the weight of each answer in the loss.
    """
    if not len(x):
        return (x.sum() + y.sum()) * 0.0
    across = x @ y.T / temperature
    beside = [rows @ rows.T / temperature if strong else None for rows in (x, y)]
    own = torch.eye(len(x), dtype=torch.bool, device=x.device)
    equal = own if kinds is None else own | ((kinds[:, None] == kinds) & (kinds >= 0))
    forward = _cross_entropy(across, beside[0], own, equal, same)
    return (forward + _cross_entropy(across.T, beside[1], own, equal, same)) / 2


def _cross_entropy(
    scores: Tensor, beside: Tensor | None, own: Tensor, equal: Tensor, same: Mapping[Same, float]
) -> Tensor:
    """Return the mean over rows of −log of the probability of each row's partners, by kind of answer.

    Args:
        scores: `[n, n]`, similarities of each row with the other side's rows; its partner is on the diagonal.
        beside: `[n, n]`, similarities with the rows of its own side, if these are candidates.
        own, equal: bool `[n, n]`, the diagonal, and rows that are equal.
        same: see `info_nce`.
    """

    def log_p(scores: Tensor, left_out: Tensor) -> Tensor:
        """Log-probabilities of the other side's rows; rows of the own side that are `left_out` are no candidates."""
        if beside is not None:
            scores = torch.cat([scores, beside.masked_fill(left_out, -torch.inf)], dim=1)
        return scores.log_softmax(1)[:, : len(own)]

    among_all = log_p(scores, equal)
    total = scores.new_zeros(())
    for how, weight in same.items():
        if how == "negative":
            of_partner = (among_all if beside is None else log_p(scores, own)).diagonal()
        elif how == "ignored":
            of_partner = log_p(scores.masked_fill(equal & ~own, -torch.inf), equal).diagonal()
        elif how == "one":
            of_partner = among_all.masked_fill(~equal, -torch.inf).logsumexp(1)
        else:
            of_partner = (among_all * (equal / equal.sum(1, keepdim=True))).sum(1)
        total = total - weight * of_partner.mean()
    return total


def neighbours_lost(now: Tensor, before: Tensor, *, temperature: float) -> Tensor:
    """Return how far each row's neighbours are from what they were before.

    With q_ij and p_ij the softmax over j ≠ i of cosine(i, j)/τ now and before, it is the mean over i of the divergence
    Σ_j p_ij log(p_ij / q_ij): 0 where the similarities stay as they were, whatever becomes of the vectors (relational
    distillation, after Park et al. 2019, and Fang et al. 2021, "SEED", Eq. 3).

    Args:
        now, before: `[n, dim]`, the same words; fewer than three have no neighbours that could change.
        temperature: τ.
    """
    n = len(now)
    if n < 3:
        return now.sum() * 0.0
    log_q, log_p = (
        # All but the diagonal, `[n, n − 1]`: behind the first number, every (n + 1)-th is on the diagonal.
        ((rows @ rows.T).flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1) / temperature).log_softmax(1)
        for rows in (functional.normalize(each, dim=1) for each in (now, before))
    )
    return functional.kl_div(log_q, log_p, reduction="batchmean", log_target=True)
