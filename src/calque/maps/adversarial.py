"""A map that makes one language's vectors look like the other's to a judge that learns to tell them (Conneau et al. 2018a)."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from calque.errors import SettingError
from calque.maps.refine import mapped, mutual_neighbours


def adversarial_start(
    x: np.ndarray,
    z: np.ndarray,
    *,
    epochs: int = 5,
    updates: int = 31_250,
    batch: int = 32,
    frequent: int = 75_000,
    hidden: int = 2048,
    dropout: float = 0.1,
    smoothing: float = 0.1,
    judge_updates: int = 5,
    rate: float = 0.1,
    decay: float = 0.98,
    beta: float = 0.001,
    selected_on: int = 10_000,
    k: int = 10,
    device: str = "cpu",
    seed: int = 0,
) -> np.ndarray:
    """The map of the best epoch of adversarial training (Conneau et al. 2018a, §2.1, §3).

    A judge of two hidden layers learns to tell mapped source vectors from target vectors; the map learns to mislead it
    (`judge_updates` of the judge's to one of the map's), and is kept near orthogonal by W ← (1 + β)W − βWWᵀW after each
    update (Eq. 7). The best epoch is the one with the largest mean CSLS of mutual neighbours; when that fell for the
    second time, the rate is halved. The published program takes the mean cosine of every frequent word with its nearest
    by CSLS instead.

    The start is the identity for seed 0, as published, and a random rotation for others: restarts begin elsewhere.

    Args:
        x, z: `[n, dim]` and `[m, dim]`, rows of length 1, the most frequent words first.
        epochs, updates: passes, and updates of the map in each; the published million of words by batches of 32.
        batch: words of each side in an update.
        frequent: words of each side that are drawn, from the first.
        hidden, dropout, smoothing: the judge's hidden size, dropout of its input, and what is taken from the certainty
            of its targets.
        judge_updates: of the judge, to one of the map.
        rate, decay: learning rate of both, and what it is multiplied with after each epoch.
        beta: of the step towards orthogonality.
        selected_on: frequent words that the selection looks at.
        k: neighbourhood of CSLS.
        device: where to train.

    Returns:
        float64 `[dim, dim]`.
    """
    if x.shape[1] != z.shape[1]:
        raise SettingError(f"source vectors of {x.shape[1]} dimensions, target vectors of {z.shape[1]}")
    dim = x.shape[1]
    random = torch.Generator(device=device).manual_seed(seed)
    left, right = (torch.from_numpy(np.ascontiguousarray(side[:frequent])).to(device) for side in (x, z))
    turn = torch.eye(dim)
    if seed:
        drawn = np.random.default_rng(seed).standard_normal((dim, dim))
        turn = torch.from_numpy(np.linalg.qr(drawn)[0].astype(np.float32))
    w = turn.to(device).requires_grad_()
    judge = _Judge(dim, hidden, dropout, random).to(device)
    of_map = torch.optim.SGD([w], lr=rate)
    of_judge = torch.optim.SGD(judge.parameters(), lr=rate)
    is_source = torch.cat([torch.full((batch,), 1 - smoothing), torch.full((batch,), smoothing)]).to(device)
    loss = nn.functional.binary_cross_entropy_with_logits

    def drawn_vectors() -> torch.Tensor:
        rows, columns = (torch.randint(len(s), (batch,), generator=random, device=device) for s in (left, right))
        return torch.cat([left[rows] @ w, right[columns]])

    best, best_value, fell = w.detach().cpu().double().numpy(), -np.inf, False
    for _ in range(epochs):
        for _ in range(updates):
            for _ in range(judge_updates):
                with torch.no_grad():
                    vectors = drawn_vectors()
                of_judge.zero_grad(set_to_none=True)
                loss(judge(vectors, dropped=True), is_source).backward()
                of_judge.step()
            of_map.zero_grad(set_to_none=True)
            loss(judge(drawn_vectors(), dropped=False), 1 - is_source).backward()
            of_map.step()
            with torch.no_grad():
                w.copy_((1 + beta) * w - beta * w @ w.T @ w)
        matrix = w.detach().cpu().double().numpy()
        if not np.isfinite(matrix).all():
            break
        scores = mutual_neighbours(mapped(x[:selected_on], matrix), z[:selected_on], k=k)[1]
        value = float(scores.mean()) if len(scores) else -np.inf
        for group in of_map.param_groups:
            group["lr"] *= decay
            if value < best_value:
                group["lr"] *= 0.5 if fell else 1.0
        fell = fell or value < best_value
        if value > best_value:
            best, best_value = matrix, value
    return best


class _Judge(nn.Module):
    """The probability, as a logit, that a vector is a mapped source vector. Its randomness is the generator's own."""

    def __init__(self, dim: int, hidden: int, dropout: float, random: torch.Generator):
        super().__init__()
        self.dropout, self.random = dropout, random
        sizes = [(dim, hidden), (hidden, hidden), (hidden, 1)]
        self.layers = nn.ModuleList(nn.Linear(*size, device=random.device) for size in sizes)
        with torch.no_grad():
            for (inputs, _), layer in zip(sizes, self.layers, strict=True):
                for parameter in layer.parameters():  # what `nn.Linear` does, from our generator
                    parameter.uniform_(-(inputs**-0.5), inputs**-0.5, generator=random)

    def forward(self, x: torch.Tensor, *, dropped: bool) -> torch.Tensor:
        if dropped and self.dropout:
            mask = torch.rand(x.shape, generator=self.random, device=x.device) >= self.dropout
            x = x * mask / (1 - self.dropout)
        first, second, last = self.layers
        leaky = nn.functional.leaky_relu
        return last(leaky(second(leaky(first(x), 0.2)), 0.2))[:, 0]
