"""Sums over all tag sequences of a chain, step by step over the whole batch, for any device.

The same quantities as in `calque.nn.chain`, whose docstrings have the formulas: at each step, one operation for all
sentences that still run. Float64 here as well: weights of float32 would span too little, and its matrix products may be
set to be rounded to TF32 or bfloat16.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from calque.nn.ragged import Ragged


def log_likelihood(
    scores: Tensor, tags: Tensor, transitions: Tensor, start: Tensor, end: Tensor, ragged: Ragged, *, logarithms: bool = False
) -> Tensor:  # fmt: skip
    """As `chain.log_likelihood`.

    Args:
        logarithms: add in log space, slowly, which no number is too large for; its gradient is autograd's.
    """
    steps = Steps(ragged, scores.device)
    partition = log_partition if logarithms else _LogPartition.apply
    return steps.path(scores, tags, transitions, start, end) - partition(scores, transitions, start, end, steps)


def log_partition(scores: Tensor, transitions: Tensor, start: Tensor, end: Tensor, steps: Steps) -> Tensor:
    """Log of the sum over all tag sequences of each sentence, `[n_sentences]`, as the textbook has it."""
    scores, ended = scores[steps.words], []
    alpha = start + scores[: len(steps.filled)]
    for begin, stop in steps.blocks[1:]:
        ended.append(alpha[stop - begin :])
        alpha = torch.logsumexp(alpha[: stop - begin, :, None] + transitions, dim=1) + scores[begin:stop]
    total = torch.logsumexp(torch.cat([alpha, *reversed(ended)]) + end, dim=1)
    return scores.new_zeros(steps.n_sentences).index_add(0, steps.filled, total)


def best_tags(scores: Tensor, transitions: Tensor, start: Tensor, end: Tensor, ragged: Ragged) -> Tensor:
    """As `chain.best_tags`; the same additions in the same order, so that ties are the same."""
    steps = Steps(ragged, scores.device)
    delta, pointers = scores[steps.words], []
    delta[: len(steps.filled)] += start
    for (last, _), (begin, stop) in pairwise(steps.blocks):
        best, pointer = (delta[last : last + stop - begin, :, None] + transitions).max(dim=1)
        delta[begin:stop] += best
        pointers.append((slice(last, last + stop - begin), slice(begin, stop), pointer))
    tags = torch.empty(len(scores), dtype=torch.int64, device=scores.device)
    tags[steps.final] = (delta[steps.final] + end).argmax(1)
    for before, after, pointer in reversed(pointers):
        tags[before] = pointer.gather(1, tags[after, None])[:, 0]
    return torch.empty_like(tags).index_copy(0, steps.words, tags)


class Steps:
    """A batch in time-major order, on a device.

    Attributes:
        blocks: begin and end of the places of each step.
        words: int64 `[n_words]`, which word stands at each place.
        later, before: int64 `[n_words - n_filled]`, places from the second step on, and the place of the word before.
        filled: int64 `[n_filled]`, the sentences that have words, long before short.
        final: int64 `[n_filled]`, place of the last word of each of them.
        sentence: int64 `[n_words]`, the sentence at each place.
        n_sentences: with those without words.
    """

    def __init__(self, ragged: Ragged, device: torch.device):
        sizes = torch.tensor(ragged.sizes, dtype=torch.int64)
        stops = sizes.cumsum(0)
        self.blocks = list(zip((stops - sizes).tolist(), stops.tolist(), strict=True))
        self.n_sentences = len(ragged)
        words, filled = torch.from_numpy(ragged.from_left), torch.from_numpy(ragged.order)
        rank, step = (torch.from_numpy(array) for array in ragged.steps)
        lengths = torch.from_numpy(ragged.lengths)[filled]
        later = (step > 0).nonzero()[:, 0]
        before = (stops - sizes)[step[later] - 1] + rank[later]
        final = (stops - sizes)[lengths - 1] + torch.arange(len(filled))
        arrays = (words, filled, later, before, final, filled[rank])
        self.words, self.filled, self.later, self.before, self.final, self.sentence = (x.to(device) for x in arrays)

    def path(self, scores: Tensor, tags: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Score of the given tags, `[n_sentences]`; differentiable."""
        tags = tags[self.words]
        value = scores[self.words, tags]
        value = value.index_add(0, self.later, transitions[tags[self.before], tags[self.later]])
        value = value.index_add(0, self.final, end[tags[self.final]])
        first = tags[: len(self.filled)]
        value = value.index_add(0, torch.arange(len(first), device=value.device), start[first])
        return value.new_zeros(self.n_sentences).index_add(0, self.sentence, value)


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores, transitions, start, end, steps: Steps):
        scores = scores[steps.words]
        shift = scores.amax(1)
        weight = (scores - shift[:, None]).exp_()
        table, first, last = transitions.exp(), start.exp(), end.exp()
        alpha, norms = torch.empty_like(weight), torch.empty_like(shift)
        for k, (begin, stop) in enumerate(steps.blocks):
            before = steps.blocks[k - 1][0] if k else 0
            row = weight[begin:stop] * (alpha[before : before + stop - begin] @ table if k else first)
            norms[begin:stop] = norm = row.sum(1)
            alpha[begin:stop] = row / norm[:, None]
        total = scores.new_zeros(steps.n_sentences).index_add_(0, steps.sentence, norms.log_().add_(shift))
        total.index_add_(0, steps.filled, (alpha[steps.final] @ last).log_())
        ctx.save_for_backward(table, last, weight, alpha)
        ctx.steps = steps
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any):  # type: ignore[override]
        (grad,) = grad_outputs
        (table, last, weight, alpha), steps = ctx.saved_tensors, ctx.steps
        factor = grad[steps.sentence, None]
        beta, ahead = torch.empty_like(alpha), torch.empty_like(alpha)
        after = weight.new_empty(0, len(last))
        for begin, stop in reversed(steps.blocks):
            # Behind those that go on stand the sentences that end here.
            row = torch.cat([after @ table.t(), last.expand(stop - begin - len(after), -1)])
            norm = (alpha[begin:stop] * row).sum(1, keepdim=True)
            beta[begin:stop] = row / norm
            ahead[stop : stop + len(after)] /= norm[: len(after)]
            after = beta[begin:stop] * weight[begin:stop]
            ahead[begin:stop] = after
        marginal = factor * alpha * beta
        to_scores = torch.empty_like(marginal).index_copy_(0, steps.words, marginal)
        to_transitions = table * (alpha[steps.before].t() @ (factor * ahead)[steps.later])
        return to_scores, to_transitions, marginal[: len(steps.filled)].sum(0), marginal[steps.final].sum(0), None
