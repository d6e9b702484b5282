"""Cross-entropy over many words, whose scores are never all held."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Scores held at once. On a processor they stay in its cache; a graphics card wants large products.
_HELD = {"cpu": 500_000, "cuda": 50_000_000}


def cross_entropy(states: Tensor, own: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor], hits: Tensor) -> Tensor:
    """Sum of −log p of each state's own word, p over it and the others, p(word | state) ∝ exp(w · state + b).

    The gradient is computed together with the value, while the scores are at hand, a few states at a time: neither scores
    nor their gradients are kept, as in Wijmans et al. (2025), *Cut your losses in large-vocabulary language models*, §3.

    Args:
        states: `[n, dim]`.
        own: w `[n, dim]` and b `[n]` of each state's own word.
        others: w `[m, dim]` and b `[m]` of the words that it is told from.
        hits: int64 `[n]`, which of the others is the state's own word and left out; −1 for none.
    """
    with torch.autocast(states.device.type, enabled=False):
        return _CrossEntropy.apply(states, *own, *others, hits, torch.is_grad_enabled())  # type: ignore[no-any-return]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, w_own: Tensor, b_own: Tensor, w: Tensor, b: Tensor, hits: Tensor, learn: bool
    ) -> Tensor:
        learn = learn and any(ctx.needs_input_grad)
        right = (states * w_own).sum(1).float() + b_own.float()
        loss = right.new_zeros(())
        gradients = [torch.zeros_like(part) for part in (states, w_own, b_own, w, b)] if learn else []
        rows = max(1, _HELD.get(states.device.type, _HELD["cuda"]) // max(1, len(w)))
        struck, kernel, offset = hits >= 0, w.to(states.dtype), b.to(states.dtype)
        for k in range(0, len(states), rows):
            here = slice(k, k + rows)
            block, answer = states[here], right[here, None]
            scores = torch.addmm(offset, block, kernel.t()).float()
            place = struck[here].nonzero().squeeze(1)
            scores[place, hits[here][place]] = -torch.inf
            top = torch.maximum(scores.amax(1, keepdim=True), answer)
            scores.sub_(top).exp_()
            mine = (answer - top).exp_()
            total = scores.sum(1, keepdim=True).add_(mine)
            loss += (total.log() + top - answer).sum()
            if not learn:
                continue
            probability = (mine / total).sub_(1)
            weighted, scores = (block / total).to(kernel.dtype), scores.to(kernel.dtype)
            d_states, d_own, d_own_b, d_w, d_b = gradients
            d_states[here] = (scores @ kernel).div_(total).add_(probability * w_own[here])
            d_own[here] = probability * block
            d_own_b[here] = probability.squeeze(1)
            d_w += scores.t() @ weighted
            d_b += scores.t() @ total.reciprocal().squeeze(1).to(kernel.dtype)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *above: Any):  # type: ignore[override]
        return *(above[0] * part for part in ctx.saved_tensors), None, None
