"""Maps without the constraint of orthogonality."""

from __future__ import annotations

from typing import Self

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
