"""Orthogonal maps: they turn the source space and keep its distances."""

from __future__ import annotations

from typing import Self

import numpy as np

from calque.algebra.procrustes import Moments, procrustes
from calque.errors import SettingError
from calque.maps.base import VectorMap


class Rotation(VectorMap):
    """min Σ ‖xW − y‖² with WᵀW = I (Cao 2020, Eq. 1; Kulshreshtha 2020, Eqs. 1–3).

    W may also reflect, as in all published versions.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x, turn = rng.normal(size=(100, 4)), np.linalg.qr(rng.normal(size=(4, 4)))[0]
        >>> bool(np.allclose(Rotation().fit(x, x @ turn).matrix, turn))
        True
    """

    kind = "rotation"

    def fit_moments(self, moments: Moments) -> Self:
        return self._set(_rotation(moments.raw_cross), moments, centred=False)


class NormalizedRotation(VectorMap):
    """Rotation between centred languages: x → (x − x̄)W + ȳ (Kulshreshtha 2020, §2.1, Eqs. 4–5).

    The means are those of the vectors it is fitted on.
    """

    kind = "normalized-rotation"

    def fit_moments(self, moments: Moments) -> Self:
        return self._set(_rotation(moments.cross), moments, centred=True)


def _rotation(cross: np.ndarray) -> np.ndarray:
    if cross.shape[0] != cross.shape[1]:
        raise SettingError(f"a rotation needs equal dimensions, got {cross.shape[0]} and {cross.shape[1]}")
    return procrustes(cross)
