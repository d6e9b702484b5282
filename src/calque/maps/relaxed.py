"""RCSLS: a linear map that is fitted to what retrieval by CSLS asks for (Joulin et al. 2018)."""

from __future__ import annotations

import numpy as np
import torch

from calque.algebra.procrustes import procrustes
from calque.algebra.similarity import full_precision

_CELLS = 40_000_000  # similarities held at once


def relaxed_csls(
    x: np.ndarray,
    z: np.ndarray,
    pairs: np.ndarray,
    *,
    k: int = 10,
    steps: int = 10,
    rate: float = 1.0,
    candidates: int = 200_000,
    spectral: bool = False,
    batch: int | None = None,
    seed: int = 0,
) -> tuple[np.ndarray, list[float]]:
    """The W that minimises the relaxed CSLS loss over a dictionary (Joulin et al. 2018, Eq. 6), from Procrustes on.

    With all pairs in a step the loss falls with every step that is kept: one that makes it larger is taken back, and the
    rate halved. The published program means the same, but changes its matrix in place, so that only the rate is halved.

    Args:
        x, z: float32 `[n, dim]` and `[m, dim]`, rows of length 1, the most frequent words first.
        pairs: int64 `[n_pairs, 2]`, rows that translate each other.
        k: neighbours.
        steps: of gradient descent.
        rate: its first step's size.
        candidates: words of each side, from the first, among which the neighbours are ("extended" RCSLS; §4).
        spectral: keep W's singular values in [0, 1] (the convex relaxation of orthogonality; §3), instead of no
            constraint, which the paper found best.
        batch: pairs drawn for each step (stochastic gradient, no taking back); None for all.

    Returns:
        W float64 `[dim, dim]`, and the loss before each step and after the last.
    """
    w = procrustes(x[pairs[:, 0]].T.astype(np.float64) @ z[pairs[:, 1]].astype(np.float64))
    source, target = torch.from_numpy(x), torch.from_numpy(z)
    rng = np.random.default_rng(seed)

    def at(w: np.ndarray) -> tuple[float, np.ndarray]:
        chosen = pairs if batch is None or batch >= len(pairs) else pairs[rng.choice(len(pairs), batch, replace=False)]
        rows, columns = (torch.from_numpy(np.ascontiguousarray(chosen[:, side])) for side in (0, 1))
        loss, gradient = rcsls_loss(
            torch.from_numpy(w.astype(np.float32)), source[rows], target[columns], source[:candidates],
            target[:candidates], k=k,
        )  # fmt: skip
        return loss, gradient.double().numpy()

    loss, gradient = at(w)
    losses = [loss]
    for _ in range(steps):
        new = w - rate * gradient
        if spectral:
            u, s, vt = np.linalg.svd(new)
            new = u * np.clip(s, 0.0, 1.0) @ vt
        new_loss, new_gradient = at(new)
        if batch is None and new_loss > loss:
            rate /= 2
            if rate < 1e-4:
                break
            continue
        w, loss, gradient = new, new_loss, new_gradient
        losses.append(loss)
    return w, losses


def rcsls_loss(
    w: torch.Tensor, x: torch.Tensor, y: torch.Tensor, sources: torch.Tensor, targets: torch.Tensor, *, k: int = 10
) -> tuple[float, torch.Tensor]:
    """Loss and gradient (Joulin et al. 2018, Eq. 6), divided by the number of pairs:

        (1/n) Σᵢ  −2 xᵢW·yᵢ  +  (1/k) Σ of the k largest xᵢW·t, t ∈ targets  +  (1/k) Σ of the k largest sW·yᵢ, s ∈ sources

    which is convex in W: a maximum over neighbourhoods of functions that are linear in it.

    Args:
        w: `[dim, target_dim]`.
        x, y: `[n, dim]` and `[n, target_dim]`, pairs.
        sources, targets: the words among which neighbours are.
        k: neighbours.

    Returns:
        the loss, and its gradient (a subgradient where two words tie for the last place) `[dim, target_dim]`.
    """
    with full_precision():
        turned = x @ w
        loss = -2 * (turned * y).sum(dtype=torch.float64)
        gradient = -2 * x.T @ y
        # Of the pairs' source words among the targets, and of their target words among the mapped sources.
        forward, near_targets = _nearest(turned, targets, k)
        backward, near_sources = _nearest(y, sources @ w, k)
        loss += forward + backward
        gradient += x.T @ _sums(near_targets, targets) / near_targets.shape[1]
        gradient += _sums(near_sources, sources).T @ y / near_sources.shape[1]
    return float(loss) / len(x), gradient / len(x)


def _nearest(x: torch.Tensor, candidates: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum of the mean of the k largest products of each row, and whose they are `[n, k]`."""
    k = min(k, len(candidates))
    total, places = torch.zeros((), dtype=torch.float64), []
    step = max(1, _CELLS // max(1, len(candidates)))
    for start in range(0, len(x), step):
        values, indices = torch.topk(x[start : start + step] @ candidates.T, k, dim=1)
        total += values.sum(dtype=torch.float64) / k
        places.append(indices)
    return total, torch.cat(places) if places else torch.zeros((0, k), dtype=torch.int64)


def _sums(places: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Sum of the vectors at each row's places, `[n, dim]`, without a tensor of `[n, k, dim]`."""
    total = vectors[places[:, 0]].clone()
    for column in range(1, places.shape[1]):
        total += vectors[places[:, column]]
    return total
