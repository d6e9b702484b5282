"""Maps of vectors as estimators of scikit-learn (extra `sklearn`)."""

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
    raise MissingExtraError("scikit-learn", "sklearn", "an estimator for scikit-learn") from missing

_METHODS = ("rotation", "procrustes", "linear")


class AlignmentMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Maps vectors of one space into another, fitted on rows that belong together, such as those of words and their
    translations: `AlignmentMap().fit(X, Y).transform(X)` lies near `Y`.

    It fits what `Rotation`, `NormalizedRotation` and `LinearMap` of `calque.maps` fit, and takes what scikit-learn gives: in a
    `Pipeline` all steps before it change X alone.

    Args:
        method: "rotation", or "procrustes", which is the same: min Σ ‖xW − y‖² with WᵀW = I; "linear": over all W. Where one
            side has fewer columns, a rotation takes it for one with columns of zeros.
        centre: fit between vectors less their means, and move the mean of X onto that of Y: x → (x − x̄)W + ȳ.

    Attributes:
        map_: the fitted `VectorMap`, which the rest of calque takes, too.
        n_features_in_: columns of X.
        feature_names_in_: their names, where X had some.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x, turn = rng.normal(size=(100, 4)), np.linalg.qr(rng.normal(size=(4, 4)))[0]
        >>> bool(np.allclose(AlignmentMap().fit(x, x @ turn).transform(x), x @ turn))
        True
    """

    def __init__(self, method: Literal["rotation", "procrustes", "linear"] = "rotation", *, centre: bool = False):
        self.method = method
        self.centre = centre

    def fit(self, X: Any, y: Any) -> Self:
        """Fit on paired rows.

        Args:
            X: `[n, dim]`.
            y: `[n, target_dim]`, or `[n]` for one column.

        Raises:
            SettingError: no such method.
        """
        if self.method not in _METHODS:
            raise SettingError(f"method={self.method!r}, expected one of {', '.join(_METHODS)}")
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)
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
        """Rows of X in the space of y, `[n, target_dim]`, in the type of X if that is float32 or float64."""
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
    """A rotation between spaces of different sizes: that of the larger, in which the other has columns of zeros."""
    cross = moments.cross if centre else moments.raw_cross
    rows, columns = cross.shape
    size = max(rows, columns)
    matrix = procrustes(np.pad(cross, ((0, size - rows), (0, size - columns))))[:rows, :columns]
    means = (moments.source_mean, moments.target_mean) if centre else (np.zeros(rows), np.zeros(columns))
    kind = NormalizedRotation if centre else Rotation
    return kind.from_arrays(
        {"matrix": matrix, "source_mean": means[0], "target_mean": means[1]}, moments.n
    )  # fmt: skip
