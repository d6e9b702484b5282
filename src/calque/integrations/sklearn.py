"""A scikit-learn estimator for alignment maps (requires the extra `sklearn`)."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np

from calque.algebra.procrustes import Moments, procrustes
from calque.errors import MissingExtraError, SettingError
from calque.maps import LinearMap, NormalizedRotation, Rotation, VectorMap

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as missing:
    raise MissingExtraError("scikit-learn", "sklearn", "the scikit-learn estimator") from missing

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
        moments = Moments.of(X, y)
        if self.method == "linear":
            self.map_: VectorMap = LinearMap(centred=self.centre).fit_moments(moments)
        elif X.shape[1] == y.shape[1]:
            self.map_ = (NormalizedRotation if self.centre else Rotation)().fit_moments(moments)
        else:
            self.map_ = _narrowed(moments, self.centre)
        self._n_features_out = y.shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return X mapped to the space of y, `[n, target_dim]`, with the dtype of X if it is
        float32 or float64.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self.map_.transform(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _narrowed(moments: Moments, centre: bool) -> VectorMap:
    """Return a rotation between spaces of different dimensions; vectors of the smaller space are
    padded with zeros.
    """
    cross = moments.cross if centre else moments.raw_cross
    rows, columns = cross.shape
    size = max(rows, columns)
    matrix = procrustes(np.pad(cross, ((0, size - rows), (0, size - columns))))[:rows, :columns]
    means = (
        (moments.source_mean, moments.target_mean)
        if centre
        else (np.zeros(rows), np.zeros(columns))
    )
    kind = NormalizedRotation if centre else Rotation
    return kind.from_arrays(
        {"matrix": matrix, "source_mean": means[0], "target_mean": means[1]}, moments.n
    )
