"""A scikit-learn estimator for alignment maps (requires the extra `sklearn`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from calque.algebra.procrustes import Moments, procrustes
from calque.errors import MissingExtraError, SettingError
from calque.maps import LinearMap, NormalizedRotation, Rotation, VectorMap

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as missing:
    raise MissingExtraError("scikit-learn", "sklearn", "the scikit-learn estimator") from missing

if TYPE_CHECKING:
    from sklearn.utils import Tags

_METHODS = ("rotation", "procrustes", "linear")


class AlignmentMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Map from one vector space to another, fitted on paired vectors, such as those of words and
    their translations.

    `AlignmentMap().fit(X, Y).transform(X)` approximates `Y`. The fitted map is a `Rotation`,
    `NormalizedRotation` or `LinearMap` from `calque.maps`. In a `Pipeline`, earlier steps transform
    only X.

    Args:
        method: how to fit W. "rotation" and "procrustes" minimise Σ ‖xW − y‖² with WᵀW = I, and
            "linear" minimises it over all W. For a rotation, vectors of the space with fewer
            dimensions are padded with zeros.
        centre: whether to fit W on mean-centred vectors and map the mean of X to the mean of Y: x →
            (x − x̄)W + ȳ.

    Attributes:
        map_: the fitted `VectorMap`.
        n_features_in_: number of columns of X.
        feature_names_in_: column names of X, if X has column names.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x, turn = rng.normal(size=(100, 4)), np.linalg.qr(rng.normal(size=(4, 4)))[0]
        >>> bool(np.allclose(AlignmentMap().fit(x, x @ turn).transform(x), x @ turn))
        True
    """

    def __init__(
        self,
        method: Literal["rotation", "procrustes", "linear"] = "rotation",
        *,
        centre: bool = False,
    ):
        self.method = method
        self.centre = centre

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the map on paired rows. X is `[n, dim]`, and y is `[n, target_dim]`, or `[n]` for a
        single column.
        """
        if self.method not in _METHODS:
            raise SettingError(f"method must be one of {', '.join(_METHODS)}, got {self.method!r}")
        X, y = validate_data(
            self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True
        )
        y = y.reshape(len(y), -1)
        self.map_ = _fitted_map(Moments.of(X, y), self.method, self.centre)
        self._n_features_out = y.shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return X mapped to the space of y, `[n, target_dim]`, with the dtype of X if it is
        float32 or float64.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self.map_.transform(X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _fitted_map(moments: Moments, method: str, centre: bool) -> VectorMap:
    """Fit the map with this method on the moments of the paired rows."""
    if method == "linear":
        return LinearMap(centred=centre).fit_moments(moments)
    rotation_class = NormalizedRotation if centre else Rotation
    cross = moments.cross if centre else moments.raw_cross
    rows, columns = cross.shape
    if rows == columns:
        return rotation_class().fit_moments(moments)
    # Pad the vectors of the smaller space with zeros, and cut the rotation to the given dimensions.
    size = max(rows, columns)
    padded = np.pad(cross, ((0, size - rows), (0, size - columns)))
    arrays = {
        "matrix": procrustes(padded)[:rows, :columns],
        "source_mean": np.zeros(rows),
        "target_mean": np.zeros(columns),
    }
    if centre:
        arrays["source_mean"], arrays["target_mean"] = moments.source_mean, moments.target_mean
    return rotation_class.from_arrays(arrays, moments.n)
