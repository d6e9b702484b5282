"""Compare the probe with the paper's formulas, one target and one word at a time."""

import numpy as np
import pytest
import torch

from calque.nn.probe import Probe, SpanPooling, SpanRows

DIM, LABELS, WIDTH, HIDDEN = 6, 4, 5, 7


def literal(probe, rows, targets):
    """Compute §3.1 of Tenney et al. (2019b), one target at a time; `targets` lists the rows of each
    span.
    """
    words = list(rows)
    scores = []
    for spans in targets:
        pooled = []
        for pool, span in zip(probe.pools, spans, strict=True):
            projected = [pool.project.weight @ words[i] + pool.project.bias for i in span]
            raised = [torch.exp(pool.attention.weight[0] @ e) for e in projected]
            pooled.append(sum(a / sum(raised) * e for a, e in zip(raised, projected, strict=True)))
        first, _, norm, _, last = probe.classify
        state = torch.tanh(first.weight @ torch.cat(pooled) + first.bias)
        state = (state - state.mean()) / torch.sqrt(((state - state.mean()) ** 2).mean() + norm.eps)
        scores.append(last.weight @ (norm.weight * state + norm.bias) + last.bias)
    return torch.stack(scores)


def spans_of(targets, which):
    rows = [target[which] for target in targets]
    return SpanRows(
        torch.tensor([i for each in rows for i in each]), torch.tensor([len(each) for each in rows])
    )


SINGLE = [([0],), ([0, 1, 2],), ([2],), ([8, 3, 5],)]
FEW = [([4, 1],), ([4],)]
PAIRS = [([0], [1]), ([0, 1, 2], [4, 5]), ([7], [7]), ([8, 3], [2, 6, 4])]


@pytest.mark.parametrize("targets", [SINGLE, FEW, PAIRS], ids=["spans", "few words", "pairs"])
def test_scores_and_gradients_equal_the_formula(targets):
    torch.manual_seed(0)
    spans = len(targets[0])
    probe = Probe(DIM, LABELS, spans=spans, width=WIDTH, hidden=HIDDEN, dropout=0.0).double()
    with torch.no_grad():
        for parameter in probe.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    rows = torch.randn(9, DIM, dtype=torch.double, requires_grad=True)
    gold = torch.rand(len(targets), LABELS) > 0.5
    found = []
    for scores in (
        probe(rows, [spans_of(targets, k) for k in range(spans)]),
        literal(probe, rows, targets),
    ):
        p = torch.sigmoid(scores)
        losses = probe.losses(scores, gold)
        torch.testing.assert_close(losses, -torch.where(gold, p.log(), (1 - p).log()).sum(1))
        gradients = torch.autograd.grad(losses.sum(), [rows, *probe.parameters()])
        found.append((scores.detach(), *gradients))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert all(gradient.abs().max() > 0 for gradient in found[0][1:])


def test_large_attention_scores_do_not_overflow():
    pool = SpanPooling(2, 2)
    with torch.no_grad():
        pool.project.weight.copy_(torch.eye(2))
        pool.project.bias.zero_()
        pool.attention.weight.copy_(torch.tensor([[1.0, 0.0]]))
    rows = torch.tensor([[1000.0, 1.0], [-1000.0, 2.0], [-900.0, 3.0]])
    spans = SpanRows(torch.tensor([0, 1, 1, 2]), torch.tensor([2, 2]))
    np.testing.assert_allclose(pool(rows, spans).detach(), [[1000.0, 1.0], [-900.0, 3.0]])


def test_batches_without_targets_have_no_scores():
    probe, none = (
        Probe(DIM, LABELS, spans=1, width=WIDTH, hidden=HIDDEN, dropout=0.0),
        torch.zeros(0, dtype=torch.long),
    )
    scores = probe(torch.randn(3, DIM), [SpanRows(none, none)])
    assert scores.shape == (0, LABELS)
    probe.losses(scores, torch.zeros(0, LABELS)).sum().backward()
