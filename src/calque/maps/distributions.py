"""Unsupervised initialisation from similarity distributions, and self-learning (Artetxe, Labaka &
Agirre 2018b, ACL).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from calque.algebra.procrustes import procrustes
from calque.algebra.similarity import full_precision
from calque.errors import SettingError

_STRIPE = 2_000_000  # number of similarities computed at a time


def distribution_start(
    x: np.ndarray, z: np.ndarray, *, words: int = 4000, k: int = 10, **options: Any
) -> np.ndarray:
    """Run `self_learning` with initial pairs from `similarity_seeds`; `options` are passed to
    `self_learning`.
    """
    return self_learning(x, z, similarity_seeds(x, z, words=words, k=k), k=k, **options)


def similarity_seeds(x: np.ndarray, z: np.ndarray, *, words: int = 4000, k: int = 10) -> np.ndarray:
    """Pair words whose similarity distributions within their own language match (Artetxe, Labaka &
    Agirre 2018b, ACL, §3.2).

    The sorted rows of √(XXᵀ) hardly depend on the language. They are L2-normalised, centred,
    L2-normalised, and compared by CSLS.

    Args:
        x, z: L2-normalised vectors `[n, dim]` and `[m, dim]`, the most frequent words first.
        words: number of most frequent words of each side to pair.
        k: neighbourhood size of CSLS.

    Returns:
        pairs of row indices, int64 `[2 · words, 2]`. The pairs of each source word and its best
        target word come first, followed by the pairs of each target word and its best source word.
    """
    n = min(words, len(x), len(z))
    rows = []
    for side in (x, z):
        u, s, _ = torch.linalg.svd(
            torch.from_numpy(np.ascontiguousarray(side[:n])), full_matrices=False
        )
        similar = torch.sort((u * s) @ u.T, dim=1).values
        similar = torch.nn.functional.normalize(similar, dim=1)
        rows.append(torch.nn.functional.normalize(similar - similar.mean(dim=0), dim=1))
    forward, backward, _ = _best(rows[0], rows[1], k)
    return _both_ways(forward, backward)


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
    """Alternate between fitting a map and stochastic dictionary induction (Artetxe et al. 2018b,
    §3.3).

    In each round, every word is paired with its nearest neighbour by CSLS. Each similarity is kept
    only with probability `keep`, so that the search can escape from local optima. If the mean of
    the largest similarities has not increased by `threshold` for `patience` rounds, `keep` is
    multiplied by `growth`; if `keep` is already 1, the search ends.

    Args:
        x, z: L2-normalised vectors, the most frequent words first.
        pairs: initial pairs, int64 `[n_pairs, 2]`.
        frequent: number of most frequent words of each side to pair; each round compares all pairs
            of these words.
        k: neighbourhood size of CSLS.
        keep: initial probability with which a similarity is kept in a round.
        growth: factor by which `keep` is multiplied when the search has stopped improving.
        patience: number of rounds without improvement after which `keep` is raised.
        threshold: minimum increase of the mean similarity that counts as an improvement.
        most_rounds: maximum number of rounds.
        device: device on which the similarities are computed.

    Returns:
        the pairs induced in the last round, int64 `[n_pairs, 2]`.
    """
    if not 0 < keep <= 1 or growth <= 1:
        raise SettingError(f"keep must be in (0, 1] and growth above 1, got {keep} and {growth}")
    every = [torch.from_numpy(np.ascontiguousarray(side)).to(device) for side in (x, z)]
    left, right = (side[:frequent] for side in every)
    random = np.random.default_rng(seed)
    best, waited = -math.inf, 0
    for _ in range(most_rounds):
        with full_precision():
            sources, targets = (torch.from_numpy(side).to(device) for side in pairs.T)
            cross = every[0][sources].T @ every[1][targets]
            matrix = torch.from_numpy(
                procrustes(cross.double().cpu().numpy()).astype(np.float32)
            ).to(device)
            mapped = left @ matrix
        forward, backward, value = _best(
            mapped, right, k, keep=keep, seed=int(random.integers(2**63))
        )
        pairs = _both_ways(forward, backward)
        if value >= best + threshold:
            best, waited = value, 0
            continue
        waited += 1
        if waited >= patience or keep >= 1:
            if keep >= 1:
                break
            keep, waited = min(1.0, growth * keep), 0
    return pairs


def _both_ways(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """Return the pairs of each source word and its nearest target word, and of each target word and
    its nearest source word.
    """
    sources = np.concatenate([np.arange(len(forward)), backward])
    return np.stack([sources, np.concatenate([forward, np.arange(len(backward))])], axis=1)


def _best(
    x: torch.Tensor, z: torch.Tensor, k: int, *, keep: float = 1.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the nearest neighbour of each word by CSLS in both directions, and the mean of the
    largest similarities.

    As in the published code, each similarity minus hubness is kept with probability `keep` (in
    steps of 1/256) and is set to 0 otherwise. The two directions are sampled separately. Ties go to
    the smaller index.
    """
    random = torch.Generator(device=x.device).manual_seed(seed)
    limit = max(1, round(256 * keep))
    with full_precision():
        similarities = x @ z.T
        sides = similarities, similarities.T
        near = [
            torch.cat([part.topk(min(k, part.shape[1]), dim=1).values for part in _stripes(side)])
            for side in sides
        ]
        hubness = [side.mean(dim=1) for side in near]
        best = []
        for side, others in zip(sides, reversed(hubness), strict=True):
            places = []
            for part in _stripes(side):
                scores = part - others / 2
                if limit < 256:
                    scores *= _random_bytes(scores.numel(), random).view_as(scores) < limit
                places.append(scores.argmax(dim=1))
            best.append(torch.cat(places).cpu().numpy())
    largest = sum(float(side[:, 0].double().mean()) for side in near)
    return best[0], best[1], largest / 2


def _stripes(matrix: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield blocks of rows of a matrix, with up to two million entries each."""
    return (part.contiguous() for part in matrix.split(max(1, _STRIPE // matrix.shape[1])))


def _random_bytes(n: int, random: torch.Generator) -> torch.Tensor:
    """Return `n` random uint8 values, eight from each 64-bit draw."""
    words = torch.empty(-(-n // 8), dtype=torch.int64, device=random.device)
    return words.random_(-(2**63), None, generator=random).view(torch.uint8)[:n]
