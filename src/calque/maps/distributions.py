"""Unsupervised initialisation from similarity distributions, and self-learning (Artetxe, Labaka &
Agirre 2018b, ACL).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from calque.algebra.procrustes import procrustes
from calque.algebra.similarity import full_precision
from calque.errors import check_number
from calque.spec import Count, Option

# Published values of the initialisation and of self-learning.
SEED_WORDS = 4000  # number of most frequent words of each side in the initial pairs
NEIGHBOURHOOD = 10  # neighbourhood size of CSLS
GROWTH = 2.0  # factor by which `keep` is multiplied when the search has stopped improving
THRESHOLD = 1e-6  # minimum increase of the mean similarity that counts as an improvement
MAX_ROUNDS = 2000  # limit for a search that never stops improving

_STRIPE = 2_000_000  # number of similarities computed at a time


def distribution_start(x: np.ndarray, z: np.ndarray, **options: Any) -> np.ndarray:
    """Run `self_learning` with initial pairs from `similarity_seeds`; `options` are passed to
    `self_learning`.
    """
    return self_learning(x, z, similarity_seeds(x, z), **options)


def similarity_seeds(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Pair words whose similarity distributions within their own language match (Artetxe, Labaka &
    Agirre 2018b, ACL, §3.2).

    The sorted rows of √(XXᵀ) hardly depend on the language. They are L2-normalised, centred,
    L2-normalised, and compared by CSLS. Only the `SEED_WORDS` most frequent words of each side are
    paired.

    Args:
        x, z: L2-normalised vectors `[n, dim]` and `[m, dim]`, the most frequent words first.

    Returns:
        pairs of row indices, int64 `[2 · words, 2]`. The pairs of each source word and its best
        target word come first, followed by the pairs of each target word and its best source word.
    """
    # The sorted rows of both sides can only be compared if they have the same length.
    n = min(SEED_WORDS, len(x), len(z))
    source, target = _sorted_similarities(x[:n]), _sorted_similarities(z[:n])
    forward, backward, _ = _nearest(source, target)
    return _both_ways(forward, backward)


def _sorted_similarities(vectors: np.ndarray) -> Tensor:
    """Return the normalised sorted rows of √(XXᵀ) for the vectors X, float32 `[n, n]`."""
    u, s, _ = torch.linalg.svd(torch.from_numpy(np.ascontiguousarray(vectors)), full_matrices=False)
    # XXᵀ = US²Uᵀ, so √(XXᵀ) = USUᵀ.
    rows = normalize(torch.sort((u * s) @ u.T, dim=1).values, dim=1)
    return normalize(rows - rows.mean(dim=0), dim=1)


Frequent = Annotated[
    Count,
    Option(
        "number of most frequent words of each language to pair; each round compares all pairs of "
        "these words."
    ),
]
Keep = Annotated[float, Option("initial probability with which a similarity is kept in a round.")]
Patience = Annotated[
    Count, Option("number of rounds without improvement after which `keep` is doubled.")
]
Device = Annotated[str, Option("device on which the similarities are computed.")]


def self_learning(
    x: np.ndarray,
    z: np.ndarray,
    pairs: np.ndarray,
    *,
    frequent: Frequent = 20_000,
    keep: Keep = 0.1,
    patience: Patience = 50,
    device: Device = "cpu",
    seed: int = 0,
) -> np.ndarray:
    """Alternate between fitting a map and stochastic dictionary induction (Artetxe et al. 2018b,
    §3.3).

    In each round, every word is paired with its nearest neighbour by CSLS. Each similarity is kept
    only with probability `keep`, so that the search can escape from local optima. If the mean of
    the largest similarities has not increased by `THRESHOLD` for `patience` rounds, `keep` is
    multiplied by `GROWTH`; if `keep` is already 1, the search ends.

    Args:
        x, z: L2-normalised vectors, the most frequent words first.
        pairs: initial pairs, int64 `[n_pairs, 2]`.
        frequent, keep, patience, device: see the declarations above.

    Returns:
        the pairs induced in the last round, int64 `[n_pairs, 2]`.
    """
    check_number("keep", keep, above=0, most=1)
    source = torch.from_numpy(np.ascontiguousarray(x)).to(device)
    target = torch.from_numpy(np.ascontiguousarray(z)).to(device)
    random = np.random.default_rng(seed)
    best_value, waited = -math.inf, 0
    for _ in range(MAX_ROUNDS):
        matrix = _rotation(source, target, pairs)
        with full_precision():
            rotated = source[:frequent] @ matrix
        round_seed = int(random.integers(2**63))
        forward, backward, value = _nearest(rotated, target[:frequent], keep=keep, seed=round_seed)
        pairs = _both_ways(forward, backward)
        if value >= best_value + THRESHOLD:
            best_value, waited = value, 0
            continue
        if keep >= 1:
            break
        waited += 1
        if waited >= patience:
            keep, waited = min(1.0, GROWTH * keep), 0
    return pairs


def _rotation(source: Tensor, target: Tensor, pairs: np.ndarray) -> Tensor:
    """Return the rotation fitted on pairs of row indices, float32 `[dim, dim]`."""
    sources, targets = (torch.from_numpy(side).to(source.device) for side in pairs.T)
    with full_precision():
        cross = source[sources].T @ target[targets]
    matrix = procrustes(cross.double().cpu().numpy()).astype(np.float32)
    return torch.from_numpy(matrix).to(source.device)


def _both_ways(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """Return the pairs of each source word and its nearest target word, and of each target word and
    its nearest source word.
    """
    sources = np.concatenate([np.arange(len(forward)), backward])
    targets = np.concatenate([forward, np.arange(len(backward))])
    return np.stack([sources, targets], axis=1)


def _nearest(
    x: Tensor, z: Tensor, *, keep: float = 1.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the nearest neighbour of each word by CSLS in both directions, and the mean of the
    largest similarities.

    As in the published code, each similarity minus hubness is kept with probability `keep` (in
    steps of 1/256) and is set to 0 otherwise. The two directions are sampled separately. Ties go to
    the smaller index.
    """
    random = torch.Generator(device=x.device).manual_seed(seed)
    kept_bytes = max(1, round(256 * keep))
    with full_precision():
        similarities = x @ z.T
        forward_top, backward_top = _largest(similarities), _largest(similarities.T)
        forward = _best_columns(similarities, backward_top.mean(dim=1), kept_bytes, random)
        backward = _best_columns(similarities.T, forward_top.mean(dim=1), kept_bytes, random)
    mean_largest = [float(top[:, 0].double().mean()) for top in (forward_top, backward_top)]
    return forward, backward, sum(mean_largest) / 2


def _largest(similarities: Tensor) -> Tensor:
    """Return the largest similarities of each row in descending order, `[n, NEIGHBOURHOOD]`."""
    k = min(NEIGHBOURHOOD, similarities.shape[1])
    return torch.cat([stripe.topk(k, dim=1).values for stripe in _stripes(similarities)])


def _best_columns(
    similarities: Tensor, hubness: Tensor, kept_bytes: int, random: torch.Generator
) -> np.ndarray:
    """Return the column with the largest CSLS in each row, int64 `[n]`.

    Args:
        hubness: hubness of each column.
        kept_bytes: a score is kept if a random byte is below this number, and set to 0 otherwise.
    """
    best = []
    for stripe in _stripes(similarities):
        # The hubness of the row is the same for all columns, so it is not subtracted.
        scores = stripe - hubness / 2
        if kept_bytes < 256:
            scores *= _random_bytes(scores.numel(), random).view_as(scores) < kept_bytes
        best.append(scores.argmax(dim=1))
    return torch.cat(best).cpu().numpy()


def _stripes(matrix: Tensor) -> Iterator[Tensor]:
    """Yield blocks of rows of a matrix, with up to two million entries each."""
    for stripe in matrix.split(max(1, _STRIPE // matrix.shape[1])):
        yield stripe.contiguous()


def _random_bytes(n: int, random: torch.Generator) -> Tensor:
    """Return `n` random uint8 values, eight from each 64-bit draw."""
    words = torch.empty(-(-n // 8), dtype=torch.int64, device=random.device)
    return words.random_(-(2**63), None, generator=random).view(torch.uint8)[:n]
