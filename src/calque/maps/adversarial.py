"""Adversarial initialisation of a map between two vector spaces (Conneau et al. 2018a)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, leaky_relu

from calque.errors import SettingError
from calque.maps.refine import mapped, mutual_neighbours
from calque.spec import Count, Option, Range

# Published values of the training.
BATCH = 32  # number of words from each side in an update
INPUT_DROPOUT = 0.1  # input dropout of the discriminator
SMOOTHING = 0.1  # label smoothing of the discriminator
DISCRIMINATOR_UPDATES = 5  # number of discriminator updates for each update of the map
RATE = 0.1  # learning rate of the discriminator, and initial learning rate of the map
DECAY = 0.98  # factor by which the learning rate of the map is multiplied after each epoch
SELECTION_WORDS = 10_000  # number of most frequent words of each side used to select the epoch
NEIGHBOURHOOD = 10  # neighbourhood size of CSLS

Epochs = Annotated[int, Range(), Option("number of epochs.")]
Updates = Annotated[
    Count,
    Option(
        "number of updates of the map in an epoch; the default, as published, is a million words "
        "in batches of 32."
    ),
]
Frequent = Annotated[
    Count, Option("number of most frequent words of each language from which batches are drawn.")
]
Hidden = Annotated[Count, Option("hidden size of the discriminator.")]
Beta = Annotated[float, Option("strength β of the orthogonality step.")]
Device = Annotated[str, Option("device used for training.")]


def adversarial_start(
    x: np.ndarray,
    z: np.ndarray,
    *,
    epochs: Epochs = 5,
    updates: Updates = 31_250,
    frequent: Frequent = 75_000,
    hidden: Hidden = 2048,
    beta: Beta = 0.001,
    device: Device = "cpu",
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
    other seeds use a random rotation. Other published values are constants of this module.

    Args:
        x, z: L2-normalised vectors `[n, dim]` and `[m, dim]`, the most frequent words first.
        epochs, updates, frequent, hidden, beta, device: see the declarations above.

    Returns:
        the matrix of the map, float64 `[dim, dim]`.
    """
    if x.shape[1] != z.shape[1]:
        raise SettingError(
            f"source and target vectors must have equal dimensions, got {x.shape[1]} and "
            f"{z.shape[1]}"
        )
    training = AdversarialTraining(
        x[:frequent], z[:frequent], hidden=hidden, beta=beta, device=device, seed=seed
    )
    best_matrix, best_score = training.matrix(), -np.inf
    fell_before = False
    for _ in range(epochs):
        for _ in range(updates):
            training.update()
        matrix = training.matrix()
        if not np.isfinite(matrix).all():
            break
        score = _mean_csls(mapped(x[:SELECTION_WORDS], matrix), z[:SELECTION_WORDS])
        training.map_rate *= DECAY
        if score < best_score:
            # The published code tolerates one bad epoch before it halves the learning rate.
            if fell_before:
                training.map_rate *= 0.5
            fell_before = True
        if score > best_score:
            best_matrix, best_score = matrix, score
    return best_matrix


def _mean_csls(x: np.ndarray, z: np.ndarray) -> float:
    """Return the mean CSLS of mutual neighbours, or −∞ if there are none."""
    _, scores = mutual_neighbours(x, z, k=NEIGHBOURHOOD)
    return float(scores.mean()) if len(scores) else -np.inf


class AdversarialTraining:
    """Map and discriminator that are trained against each other.

    Args:
        source, target: L2-normalised vectors from which batches are drawn, `[n, dim]` and
            `[m, dim]`.
        hidden, beta, device, seed: see `adversarial_start`.
    """

    def __init__(
        self,
        source: np.ndarray,
        target: np.ndarray,
        *,
        hidden: int,
        beta: float,
        device: str,
        seed: int,
    ):
        dim = source.shape[1]
        self.beta = beta
        self.source = torch.from_numpy(np.ascontiguousarray(source)).to(device)
        self.target = torch.from_numpy(np.ascontiguousarray(target)).to(device)
        self.random = torch.Generator(device=device).manual_seed(seed)
        self.map = _initial_map(dim, seed).to(device).requires_grad_()
        self.discriminator = Discriminator(dim, hidden, self.random).to(device)
        self.map_optimizer = torch.optim.SGD([self.map], lr=RATE)
        self.discriminator_optimizer = torch.optim.SGD(self.discriminator.parameters(), lr=RATE)
        # Smoothed labels of a batch: the probability that each row is a mapped source vector.
        is_source = [torch.full((BATCH,), 1 - SMOOTHING), torch.full((BATCH,), SMOOTHING)]
        self.is_source = torch.cat(is_source).to(device)

    @property
    def map_rate(self) -> float:
        """Learning rate of the map."""
        return self.map_optimizer.param_groups[0]["lr"]

    @map_rate.setter
    def map_rate(self, rate: float) -> None:
        self.map_optimizer.param_groups[0]["lr"] = rate

    def matrix(self) -> np.ndarray:
        """Return the matrix of the map, float64 `[dim, dim]`."""
        return self.map.detach().cpu().double().numpy()

    def update(self) -> None:
        """Update the discriminator several times, and then the map once."""
        for _ in range(DISCRIMINATOR_UPDATES):
            self._update_discriminator()
        self._update_map()

    def _batch(self) -> Tensor:
        """Draw mapped source vectors followed by target vectors, `[2 · BATCH, dim]`."""
        device = self.source.device
        rows, columns = (
            torch.randint(len(side), (BATCH,), generator=self.random, device=device)
            for side in (self.source, self.target)
        )
        return torch.cat([self.source[rows] @ self.map, self.target[columns]])

    def _update_discriminator(self) -> None:
        with torch.no_grad():  # the map is fixed
            vectors = self._batch()
        logits = self.discriminator(vectors, dropped=True)
        self.discriminator_optimizer.zero_grad(set_to_none=True)
        binary_cross_entropy_with_logits(logits, self.is_source).backward()
        self.discriminator_optimizer.step()

    def _update_map(self) -> None:
        logits = self.discriminator(self._batch(), dropped=False)
        self.map_optimizer.zero_grad(set_to_none=True)
        # The map is trained with the opposite labels.
        binary_cross_entropy_with_logits(logits, 1 - self.is_source).backward()
        self.map_optimizer.step()
        with torch.no_grad():
            w, beta = self.map, self.beta
            w.copy_((1 + beta) * w - beta * w @ w.T @ w)  # Eq. 7


def _initial_map(dim: int, seed: int) -> Tensor:
    """Return the identity for seed 0, and a random rotation for other seeds, `[dim, dim]`."""
    if not seed:
        return torch.eye(dim)
    gaussian = np.random.default_rng(seed).standard_normal((dim, dim))
    return torch.from_numpy(np.linalg.qr(gaussian)[0].astype(np.float32))


class Discriminator(nn.Module):
    """Discriminator that returns the logit of the probability that a vector is a mapped source
    vector.
    """

    def __init__(self, dim: int, hidden: int, random: torch.Generator):
        super().__init__()
        self.random = random
        sizes = [(dim, hidden), (hidden, hidden), (hidden, 1)]
        self.layers = nn.ModuleList(nn.Linear(*size, device=random.device) for size in sizes)
        # Initialise as `nn.Linear` does, but with an explicit generator.
        with torch.no_grad():
            for (n_inputs, _), layer in zip(sizes, self.layers, strict=True):
                bound = n_inputs**-0.5
                for parameter in layer.parameters():
                    parameter.uniform_(-bound, bound, generator=random)

    def forward(self, x: Tensor, *, dropped: bool) -> Tensor:
        """Return the logit of each row, `[n]`; `dropped` applies the input dropout."""
        if dropped:
            mask = torch.rand(x.shape, generator=self.random, device=x.device) >= INPUT_DROPOUT
            x = x * mask / (1 - INPUT_DROPOUT)
        first, second, last = self.layers
        x = leaky_relu(first(x), 0.2)
        x = leaky_relu(second(x), 0.2)
        return last(x)[:, 0]
