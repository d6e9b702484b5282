"""A start from how similarities are distributed, and self-learning from there (Artetxe, Labaka & Agirre 2018b, ACL)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from calque.algebra.procrustes import procrustes
from calque.algebra.sweep import full_precision
from calque.errors import SettingError

_BLOCK, _HELD = 20_000_000, 100_000_000  # similarities computed at a time, and held for a second look


def distribution_start(x: np.ndarray, z: np.ndarray, *, words: int = 4000, k: int = 10, **options: Any) -> np.ndarray:
    """Pairs by `similarity_seeds`, from which `self_learning` goes on; `options` are the latter's."""
    return self_learning(x, z, similarity_seeds(x, z, words=words, k=k), k=k, **options)


def similarity_seeds(x: np.ndarray, z: np.ndarray, *, words: int = 4000, k: int = 10) -> np.ndarray:
    """Pairs of words whose similarities to the other words of their language are distributed alike (Artetxe, Labaka &
    Agirre 2018b, ACL, §3.2).

    The rows of √(XXᵀ), sorted, hardly depend on the language: they are compared, at unit length, centred and at unit
    length again, by CSLS.

    Args:
        x, z: `[n, dim]` and `[m, dim]`, rows of length 1 (normalised as they shall be), the most frequent first.
        words: of each side, the first so many.
        k: neighbourhood of CSLS.

    Returns:
        int64 `[2 · words, 2]`: the best target word of each source word, and the other way round.
    """
    n = min(words, len(x), len(z))
    rows = []
    for side in (x, z):
        u, s, _ = torch.linalg.svd(torch.from_numpy(np.ascontiguousarray(side[:n])), full_matrices=False)
        similar = torch.sort((u * s) @ u.T, dim=1).values
        similar = torch.nn.functional.normalize(similar, dim=1)
        rows.append(torch.nn.functional.normalize(similar - similar.mean(dim=0), dim=1))
    forward, backward = _best(rows[0], rows[1], k, 1.0, None)[:2]
    own = torch.arange(n)
    return torch.stack([torch.cat([own, backward]), torch.cat([forward, own])], dim=1).numpy()


def self_learning(
    x: np.ndarray,
    z: np.ndarray,
    pairs: np.ndarray,
    *,
    frequent: int = 20_000,
    k: int = 10,
    keep: float = 0.1,
    growth: float = 2.0,
    patience: int = 50,
    threshold: float = 1e-6,
    most_rounds: int = 2000,
    device: str = "cpu",
    seed: int = 0,
) -> np.ndarray:
    """Rounds of map and dictionary that first look at a random part of the similarities only (Artetxe et al. 2018b, §3.3).

    In each round every word takes its nearest of the other side by CSLS, where each similarity counts only with
    probability `keep`: so the search gets out of local optima. When the mean of the largest similarities has not grown
    for `patience` rounds, `keep` grows, up to 1; when it has not grown then, the search ends.

    Args:
        x, z: rows of length 1, the most frequent words first.
        pairs: int64 `[n_pairs, 2]`, to begin with.
        frequent: words of each side, the first so many; a round takes `frequent²` similarities.
        k: neighbourhood of CSLS.
        keep, growth, patience, threshold: see above; the defaults are the paper's.
        most_rounds: at most.
        device: where the similarities are computed.
        seed: of the drawing.

    Returns:
        int64 `[n_pairs, 2]`, pairs of the last round.
    """
    if not 0 < keep <= 1 or growth <= 1:
        raise SettingError(f"keep={keep}, growth={growth}: expected a share above 0, and more than 1")
    left, right = (torch.from_numpy(np.ascontiguousarray(side[:frequent])).to(device) for side in (x, z))
    random = np.random.default_rng(seed)
    best, waited = -math.inf, 0
    own = [torch.arange(len(side)) for side in (left, right)]
    for _ in range(most_rounds):
        cross = x[pairs[:, 0]].T.astype(np.float64) @ z[pairs[:, 1]].astype(np.float64)
        turn = torch.from_numpy(procrustes(cross).astype(np.float32)).to(device)
        with full_precision():
            forward, backward, value = _best(left @ turn, right, k, keep, random)
        pairs = torch.stack([torch.cat([own[0], backward]), torch.cat([forward, own[1]])], dim=1).numpy()
        if value >= best + threshold:
            best, waited = value, 0
            continue
        waited += 1
        if waited >= patience or keep >= 1:
            if keep >= 1:
                break
            keep, waited = min(1.0, growth * keep), 0
    return pairs


def _best(
    x: torch.Tensor, z: torch.Tensor, k: int, keep: float, random: np.random.Generator | None
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Nearest word of each word by CSLS, both ways, and the mean of the largest similarities of both sides.

    With `keep` below 1 each similarity less hubness counts with that probability, and is 0 else, as published.
    """
    step = max(1, _BLOCK // max(1, len(z)))
    starts = range(0, len(x), step)
    held = [x[i : i + step] @ z.T for i in starts] if len(x) * len(z) <= _HELD else None

    def block(number: int) -> torch.Tensor:
        return held[number] if held is not None else x[number * step : (number + 1) * step] @ z.T

    rows, columns = [], torch.zeros((len(z), 0), device=z.device)
    for number in range(len(starts)):
        part = block(number)
        rows.append(torch.topk(part, min(k, len(z)), dim=1).values)
        across = torch.cat([columns, torch.topk(part.T.contiguous(), min(k, len(part)), dim=1).values], dim=1)
        columns = torch.topk(across, min(k, across.shape[1]), dim=1).values
    near = torch.cat(rows)
    hub_x, hub_z = near.mean(dim=1), columns.mean(dim=1)
    forward, backward = [], torch.zeros(len(z), dtype=torch.int64, device=z.device)
    largest = torch.full((len(z),), -math.inf, device=z.device)
    for number, start in enumerate(starts):
        part = block(number)
        forward.append(_kept(part - hub_z / 2, keep, random).argmax(dim=1))
        values, places = _kept(part - hub_x[start : start + step, None] / 2, keep, random).max(dim=0)
        backward = torch.where(values > largest, places + start, backward)
        largest = torch.maximum(values, largest)
    value = float(near[:, 0].double().mean() + columns[:, 0].double().mean()) / 2
    return torch.cat(forward).cpu(), backward.cpu(), value


def _kept(scores: torch.Tensor, keep: float, random: np.random.Generator | None) -> torch.Tensor:
    """Scores, of which each becomes 0 with probability 1 − `keep`, to a 256th; changed in place."""
    if keep >= 1 or random is None:
        return scores
    if scores.device.type == "cpu":  # bytes from NumPy cost a fifth of floats from PyTorch
        drawn = torch.from_numpy(random.integers(0, 256, scores.shape, dtype=np.uint8))
    else:
        seeded = torch.Generator(device=scores.device).manual_seed(int(random.integers(2**62)))
        drawn = torch.randint(0, 256, scores.shape, dtype=torch.uint8, generator=seeded, device=scores.device)
    return scores.mul_(drawn < max(1, round(256 * keep)))
