"""Contrastive losses over similarities of vectors."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def info_nce(x: Tensor, y: Tensor, *, temperature: float, kinds: Tensor | None = None, share: float = 0.0) -> Tensor:
    """Return the mean over both directions of the cross entropy of each row's partner among all rows of the other side.

    Args:
        x, y: unit rows `[n, dim]`; row k of one translates row k of the other. The loss of no rows is 0.
        temperature: what similarities are divided by.
        kinds: int64 `[n]`; rows of one kind, except −1, are equal; None: no two are.
        share: weight of the loss in which all equal rows are partners, by the mean over them; the rest is the loss in which
            they are negatives.
    """
    if not len(x):
        return (x.sum() + y.sum()) * 0.0
    scores = x @ y.T / temperature
    total = scores.new_zeros(())
    for log_p in (scores.log_softmax(dim=1), scores.T.log_softmax(dim=1)):
        partner = log_p.diagonal()
        if kinds is not None and share:
            equal = (kinds[:, None] == kinds) & (kinds >= 0)
            equal.fill_diagonal_(True)
            among_equal = (log_p * (equal / equal.sum(dim=1, keepdim=True))).sum(dim=1)
            total = total - (share * among_equal + (1 - share) * partner).mean() / 2
        else:
            total = total - partner.mean() / 2
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
