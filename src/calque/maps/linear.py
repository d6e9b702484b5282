"""Maps without the constraint of orthogonality."""

from __future__ import annotations

from typing import Self

import numpy as np

from calque.algebra.procrustes import Moments, least_squares
from calque.maps.base import VectorMap


class LinearMap(VectorMap):
    """min Σ ‖xW − y‖² over all W (Mikolov et al. 2013; Multi-sense, Eq. 8).

    Args:
        centred: also fit a translation, x → (x − x̄)W + ȳ; the papers' form has none.
    """

    kind = "linear"

    def __init__(self, *, centred: bool = False):
        super().__init__()
        self.centred = centred

    def fit_moments(self, moments: Moments) -> Self:
        if self.centred:
            return self._set(least_squares(moments.gram, moments.cross), moments, centred=True)
        return self._set(least_squares(moments.raw_gram, moments.raw_cross), moments, centred=False)


def without_directions(directions: np.ndarray, n: int = 0) -> LinearMap:
    """The orthogonal projection that removes directions: x → x − (xB)Bᵀ.

    Args:
        directions: B, float64 `[dim, rank]`, orthonormal columns.
        n: vectors that they were found in.
    """
    dim = len(directions)
    zero = np.zeros(dim)
    return LinearMap.from_arrays(
        {"matrix": np.eye(dim) - directions @ directions.T, "source_mean": zero, "target_mean": zero}, n
    )
