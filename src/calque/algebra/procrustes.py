"""Linear maps between two vector spaces, fitted from moments that can be accumulated over any
number of vector pairs.
"""

from __future__ import annotations

import numpy as np
import torch

from calque.errors import SettingError


class Moments:
    """Means and centred cross-products of paired vectors in float64, which can be accumulated in
    blocks and merged.

    Blocks are merged with the update of Chan et al. (1979, "Updating formulae and a pairwise
    algorithm for computing sample variances"), so a large mean does not reduce the precision. The
    target vectors may have 0 dimensions.

    Attributes:
        n: number of pairs.
        source_mean, target_mean: mean vector of each side, `[dim]`.
        cross: centred cross-product Σ (x − x̄)ᵀ(y − ȳ), `[source_dim, target_dim]`.
        gram: centred Gram matrix Σ (x − x̄)ᵀ(x − x̄), `[source_dim, source_dim]`.
    """

    def __init__(self, source_dim: int, target_dim: int):
        self.n = 0
        self.source_mean, self.target_mean = np.zeros(source_dim), np.zeros(target_dim)
        self.cross = np.zeros((source_dim, target_dim))
        self.gram = np.zeros((source_dim, source_dim))

    @classmethod
    def of(cls, source: np.ndarray, target: np.ndarray, *, block: int | None = None) -> Moments:
        """Return the moments of the paired vectors `[n, source_dim]` and `[n, target_dim]`; see
        `update`.
        """
        moments = cls(source.shape[1], target.shape[1])
        moments.update(source, target, block=block)
        return moments

    def update(self, source: np.ndarray, target: np.ndarray, *, block: int | None = None) -> None:
        """Update the moments with paired vectors.

        Args:
            block: number of vectors converted to float64 at a time; default: 16 MB of vectors.

        Raises:
            SettingError: the numbers of source and target vectors differ, or a value is not finite.
        """
        if len(source) != len(target):
            raise SettingError(
                f"both sides must have equal numbers of vectors, got {len(source)} and "
                f"{len(target)}"
            )
        block = block or max(1, (1 << 21) // max(self.cross.shape))
        for start in range(0, len(source), block):
            x = np.asarray(source[start : start + block], dtype=np.float64)
            y = np.asarray(target[start : start + block], dtype=np.float64)
            if not (np.isfinite(x).all() and np.isfinite(y).all()):
                raise SettingError(
                    f"vectors must be finite, got NaN or infinity in rows {start} to "
                    f"{start + len(x)}"
                )
            part = Moments(*self.cross.shape)
            part.n = len(x)
            part.source_mean, part.target_mean = x.mean(axis=0), y.mean(axis=0)
            x, y = x - part.source_mean, y - part.target_mean
            part.cross, part.gram = x.T @ y, x.T @ x
            self.merge(part)

    def merge(self, other: Moments) -> None:
        """Update the moments with the pairs from which `other` was computed."""
        if other.n == 0:
            return
        n = self.n + other.n
        dx, dy = other.source_mean - self.source_mean, other.target_mean - self.target_mean
        weight = self.n * other.n / n
        self.cross += other.cross + weight * np.outer(dx, dy)
        self.gram += other.gram + weight * np.outer(dx, dx)
        self.source_mean += dx * (other.n / n)
        self.target_mean += dy * (other.n / n)
        self.n = n

    @property
    def raw_cross(self) -> np.ndarray:
        """Uncentred cross-product Σ xᵀy."""
        return self.cross + self.n * np.outer(self.source_mean, self.target_mean)

    @property
    def raw_gram(self) -> np.ndarray:
        """Uncentred Gram matrix Σ xᵀx."""
        return self.gram + self.n * np.outer(self.source_mean, self.source_mean)


def prior_weight(gram: np.ndarray, shrinkage: float) -> float:
    """Return the weight λ·tr(XᵀX)/dim of the identity in `procrustes` and `least_squares`.

    With λ = shrinkage / (1 − shrinkage), the identity weighs as much as λ further pairs per pair,
    whose vectors are spread equally over all directions and are their own translations.

    Args:
        gram: Gram matrix Σ xᵀx, `[dim, dim]`.
        shrinkage: 0 ≤ shrinkage < 1. For vectors that are spread equally over all directions, the
            least-squares map is this fraction of the way from its unshrunk form to the identity.
    """
    return shrinkage / (1 - shrinkage) * float(np.trace(gram)) / len(gram)


def procrustes(cross: np.ndarray, prior: float = 0.0) -> np.ndarray:
    """Return the orthogonal W that minimises Σ ‖xW − y‖² + prior·‖W − I‖² (Schönemann 1966;
    Kulshreshtha 2020, Eqs. 2–3, without the prior).

    For orthogonal W, both norms depend on W only through tr(Wᵀ(XᵀY + prior·I)), so the prior is
    added to the diagonal. It also determines W in directions in which there are no pairs.

    Args:
        cross: cross-product Σ xᵀy, `[dim, dim]`.
        prior: weight of the identity, see `prior_weight`.

    Returns:
        W = UVᵀ with the SVD UΣVᵀ of `cross + prior·I`, float64 `[dim, dim]`; vectors are rows, so W
        is the transpose of the papers' W.
    """
    if prior:
        cross = cross + prior * np.eye(len(cross))
    # PyTorch's SVD is three times as fast as NumPy's for 300 dimensions, and NumPy's threads would
    # compete with PyTorch's.
    u, _, vt = torch.linalg.svd(torch.from_numpy(np.ascontiguousarray(cross, dtype=np.float64)))
    return (u @ vt).numpy()


def least_squares(gram: np.ndarray, cross: np.ndarray, prior: float = 0.0) -> np.ndarray:
    """Return the W that minimises Σ ‖xW − y‖² + prior·‖W − I‖²: ridge regression towards the
    identity, or without a prior the W of minimum norm (Mikolov et al. 2013; Multi-sense, Eq. 8).

    Args:
        gram: Gram matrix Σ xᵀx, `[source_dim, source_dim]`.
        cross: cross-product Σ xᵀy, `[source_dim, target_dim]`; with a prior, both dimensions must
            be equal.
        prior: weight of the identity, see `prior_weight`.
    """
    if not prior:
        return np.linalg.lstsq(gram, cross, rcond=None)[0]
    identity = np.eye(len(gram))
    return np.linalg.solve(gram + prior * identity, cross + prior * identity)
