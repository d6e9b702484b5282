"""Adversarial initialisation of a map between two vector spaces (Conneau et al. 2018a)."""

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
    """Train a map adversarially and return the map of the best epoch (Conneau et al. 2018a, §2.1,
    §3).

    A discriminator with two hidden layers learns to distinguish mapped source vectors from target
    vectors, and the map learns to deceive the discriminator. After each update, W ← (1 + β)W −
    βWWᵀW keeps the map close to orthogonal (Eq. 7). The best epoch is the one with the largest mean
    CSLS of mutual neighbours; the published code uses the mean cosine between frequent words and
    their CSLS neighbours instead. The map's learning rate is halved when the mean CSLS is below its
    best value, except the first time. Seed 0 initialises the map with the identity, as published;
    other seeds use a random rotation.

    Args:
        x, z: L2-normalised vectors `[n, dim]` and `[m, dim]`, the most frequent words first.
        epochs: number of epochs.
        updates: number of updates of the map in an epoch; the default, as published, is a million
            words in batches of 32.
        batch: number of words from each side in an update.
        frequent: number of most frequent words of each side from which batches are drawn.
        hidden, dropout, smoothing: hidden size, input dropout and label smoothing of the
            discriminator.
        judge_updates: number of discriminator updates for each update of the map.
        rate: learning rate of the discriminator, and initial learning rate of the map.
        decay: factor by which the learning rate of the map is multiplied after each epoch.
        beta: strength β of the orthogonality step.
        selected_on: number of most frequent words of each side used to select the epoch.
        k: neighbourhood size of CSLS.
        device: device used for training.

    Returns:
        the matrix of the map, float64 `[dim, dim]`.
    """
    if x.shape[1] != z.shape[1]:
        raise SettingError(
            f"source and target vectors must have equal dimensions, got {x.shape[1]} and "
            f"{z.shape[1]}"
        )
    dim = x.shape[1]
    random = torch.Generator(device=device).manual_seed(seed)
    left, right = (
        torch.from_numpy(np.ascontiguousarray(side[:frequent])).to(device) for side in (x, z)
    )
    start = torch.eye(dim)
    if seed:
        drawn = np.random.default_rng(seed).standard_normal((dim, dim))
        start = torch.from_numpy(np.linalg.qr(drawn)[0].astype(np.float32))
    w = start.to(device).requires_grad_()
    discriminator = Discriminator(dim, hidden, dropout, random).to(device)
    of_map = torch.optim.SGD([w], lr=rate)
    of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=rate)
    is_source = torch.cat(
        [torch.full((batch,), 1 - smoothing), torch.full((batch,), smoothing)]
    ).to(device)
    loss = nn.functional.binary_cross_entropy_with_logits

    def drawn_vectors() -> torch.Tensor:
        rows, columns = (
            torch.randint(len(s), (batch,), generator=random, device=device) for s in (left, right)
        )
        return torch.cat([left[rows] @ w, right[columns]])

    best, best_value, fell = w.detach().cpu().double().numpy(), -np.inf, False
    for _ in range(epochs):
        for _ in range(updates):
            for _ in range(judge_updates):
                with torch.no_grad():
                    vectors = drawn_vectors()
                of_discriminator.zero_grad(set_to_none=True)
                loss(discriminator(vectors, dropped=True), is_source).backward()
                of_discriminator.step()
            of_map.zero_grad(set_to_none=True)
            loss(discriminator(drawn_vectors(), dropped=False), 1 - is_source).backward()
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


class Discriminator(nn.Module):
    """Discriminator that returns the logit of the probability that a vector is a mapped source
    vector.
    """

    def __init__(self, dim: int, hidden: int, dropout: float, random: torch.Generator):
        super().__init__()
        self.dropout, self.random = dropout, random
        sizes = [(dim, hidden), (hidden, hidden), (hidden, 1)]
        self.layers = nn.ModuleList(nn.Linear(*size, device=random.device) for size in sizes)
        with torch.no_grad():
            for (inputs, _), layer in zip(sizes, self.layers, strict=True):
                for parameter in (
                    layer.parameters()
                ):  # initialise as `nn.Linear` does, but with an explicit generator
                    parameter.uniform_(-(inputs**-0.5), inputs**-0.5, generator=random)

    def forward(self, x: torch.Tensor, *, dropped: bool) -> torch.Tensor:
        if dropped and self.dropout:
            mask = torch.rand(x.shape, generator=self.random, device=x.device) >= self.dropout
            x = x * mask / (1 - self.dropout)
        first, second, last = self.layers
        leaky = nn.functional.leaky_relu
        return last(leaky(second(leaky(first(x), 0.2)), 0.2))[:, 0]
