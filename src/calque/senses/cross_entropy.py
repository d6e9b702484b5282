"""Cross-entropy over many classes, whose scores are never all held."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Scores held at once. On a processor they stay in its cache; a graphics card wants large products.
_HELD = {"cpu": 500_000, "cuda": 50_000_000}
_ROWS = 128  # states at a time at least, however many classes there are: gradients in the classes are added to once for each
_LOWEST = torch.finfo(torch.float32).min


def cross_entropy(
    states: Tensor,
    own: tuple[Tensor, Tensor],
    others: tuple[Tensor, Tensor],
    hits: Tensor,
    *,
    weights: Tensor | None = None,
) -> Tensor:
    """Weighted sum of −log p of each state's own classes, p(class | state) ∝ exp(w · state + b).

    The p of an own class is taken over itself, the others, and those of the state's further own classes that are among them:

        L = Σ_n Σ_k weights[n, k] · −log( e_nk / (Σ_{j not hit} exp(s_nj) + e_nk + Σ_{l ≠ k, hits_nl ≥ 0} e_nl) )

    The gradient is computed together with the value, while the scores are at hand, a few states at a time: neither scores
    nor their gradients are kept, as in Wijmans et al. (2025), *Cut your losses in large-vocabulary language models*, §3.

    Args:
        states: `[n, dim]`.
        own: w `[n, k, dim]` and b `[n, k]` of each state's own classes.
        others: w `[m, dim]` and b `[m]` of the classes that all are told from.
        hits: int64 `[n, k]`, which of the others is this own class, and left out among them; −1 for none.
        weights: `[n, k]`; None for 1. A place that holds no class has weight 0, no hit, and may hold anything finite.
    """
    weights = states.new_ones(hits.shape) if weights is None else weights
    with torch.autocast(states.device.type, enabled=False):
        loss = _CrossEntropy.apply(states, *own, *others, hits, weights, torch.is_grad_enabled())
    return loss  # type: ignore[no-any-return]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, w_own: Tensor, b_own: Tensor, w: Tensor, b: Tensor, hits: Tensor, weights: Tensor,
        learn: bool,
    ) -> Tensor:  # fmt: skip
        learn = learn and any(ctx.needs_input_grad)
        right = (states[:, None] * w_own).sum(2).float() + b_own.float()
        loss = right.new_zeros(())
        gradients = [torch.zeros_like(part) for part in (states, w_own, b_own, w, b)] if learn else []
        rows = max(_ROWS, _HELD.get(states.device.type, _HELD["cuda"]) // max(1, len(w)))
        struck, kernel, offset = hits >= 0, w.to(states.dtype), b.to(states.dtype)
        told = struck[:, None] | torch.eye(hits.shape[1], dtype=torch.bool, device=hits.device)  # [n, k, l]
        for k in range(0, len(states), rows):
            here = slice(k, k + rows)
            block, answer, share = states[here], right[here], weights[here]
            scores = torch.addmm(offset, block, kernel.t()).float()
            place, column = struck[here].nonzero(as_tuple=True)
            scores[place, hits[here][place, column]] = -torch.inf
            # Others and own classes have a largest score of their own: either may be too far below the other for exp.
            top = scores.amax(1, keepdim=True).clamp_(min=_LOWEST) if len(kernel) else answer[:, :1] * 0
            total = scores.sub_(top).exp_().sum(1, keepdim=True)
            of_others, of_own = total.log() + top, answer[:, None].masked_fill(~told[here], -torch.inf)
            whole = torch.logaddexp(of_own.logsumexp(2), of_others)
            loss += (share * (whole - answer)).sum()
            if not learn:
                continue
            error = (share[:, :, None] * (of_own - whole[:, :, None]).exp()).sum(1) - share
            rest = (share * (of_others - whole).exp()).sum(1, keepdim=True) / total.clamp(min=1)
            scores = scores.to(kernel.dtype)
            d_states, d_own, d_own_b, d_w, d_b = gradients
            d_states[here] = (scores @ kernel).mul_(rest).add_((error[:, :, None] * w_own[here]).sum(1))
            d_own[here] = error[:, :, None] * block[:, None]
            d_own_b[here] = error
            d_w += scores.t() @ (block * rest).to(kernel.dtype)
            d_b += scores.t() @ rest.squeeze(1).to(kernel.dtype)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Any):  # type: ignore[override]
        return *(above[0] * part for part in ctx.saved_tensors), None, None, None
