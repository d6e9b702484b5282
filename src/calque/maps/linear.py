"""Rotations and linear maps from the vector space of one language to that of another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from os import PathLike
from typing import Any, ClassVar, Literal, Self

import numpy as np

from calque.algebra.procrustes import Moments, least_squares, prior_weight, procrustes
from calque.errors import InputError, SettingError, check_number
from calque.named import class_in_file, is_path
from calque.storage import mapped_array


class VectorMap(ABC):
    """Map from the source space to the target space: `y ≈ (x − source_mean) @ matrix +
    target_mean`. Vectors are rows.

    Attributes:
        matrix: matrix of the map, float64 `[source_dim, target_dim]`, or None before `fit`.
        source_mean, target_mean: mean of each side, float64 `[dim]`, or zero for maps without
            centring.
        n_pairs: number of vector pairs on which the map was fitted.
        shrinkage: how strongly the map was shrunk towards the identity, from 0 (not at all) to 1
            (the map does not change vectors); see `calque.algebra.procrustes.prior_weight`.
    """

    #: name of this kind of map in files and on the command line
    kind: ClassVar[str]
    # for subclasses that do not call the constructor
    shrinkage: float = 0.0

    def __init__(self, *, shrinkage: float = 0.0):
        check_number("shrinkage", shrinkage, least=0, most=1)
        self.shrinkage = float(shrinkage)
        self.matrix: np.ndarray | None = None
        self.source_mean: np.ndarray | None = None
        self.target_mean: np.ndarray | None = None
        self.n_pairs = 0

    def fit(self, source: np.ndarray, target: np.ndarray) -> Self:
        """Fit the map on paired vectors `[n, dim]`, and return self."""
        return self.fit_moments(Moments.of(source, target))

    @abstractmethod
    def fit_moments(self, moments: Moments) -> Self:
        """Fit the map on the moments of vector pairs, and return self."""

    def transform(
        self, vectors: np.ndarray, side: Literal["source", "target"] = "source"
    ) -> np.ndarray:
        """Map source vectors `[n, dim]` to the target space; with `side="target"`, return the
        vectors unchanged.

        The result has the dtype of the input. The product is computed in float64 for float64 input,
        otherwise in float32.
        """
        if side == "target":
            return vectors
        arrays = self.arrays()
        matrix = arrays["matrix"]
        if vectors.shape[1] != len(matrix):
            raise SettingError(
                f"vectors must have {len(matrix)} dimensions, got {vectors.shape[1]}"
            )
        dtype = np.float64 if vectors.dtype == np.float64 else np.float32
        # (x − source_mean) W + target_mean = x W + offset, so the vectors are copied only once.
        offset = (arrays["target_mean"] - arrays["source_mean"] @ matrix).astype(dtype)
        mapped = mapped_array((len(vectors), matrix.shape[1]), dtype)
        np.matmul(vectors.astype(dtype, copy=False), matrix.astype(dtype), out=mapped)
        mapped += offset
        return mapped.astype(vectors.dtype, copy=False)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to be saved."""
        if self.matrix is None or self.source_mean is None or self.target_mean is None:
            raise SettingError("this map has not been fitted yet; call fit first")
        return {
            "matrix": self.matrix,
            "source_mean": self.source_mean,
            "target_mean": self.target_mean,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], n_pairs: int = 0) -> Self:
        """Rebuild a map from saved arrays; missing means are set to 0."""
        matrix = np.array(arrays["matrix"])
        source_dim, target_dim = matrix.shape
        fitted = cls()
        fitted.matrix, fitted.n_pairs = matrix, n_pairs
        fitted.source_mean = np.array(arrays.get("source_mean", np.zeros(source_dim)))
        fitted.target_mean = np.array(arrays.get("target_mean", np.zeros(target_dim)))
        return fitted

    def _set(self, matrix: np.ndarray, moments: Moments, *, centred: bool) -> Self:
        if moments.n == 0:
            raise SettingError(
                "fitting a map requires pairs of vectors, got none; no link of the text connects "
                "two words with vectors"
            )
        self.matrix, self.n_pairs = matrix, moments.n
        self.source_mean = moments.source_mean.copy() if centred else np.zeros(matrix.shape[0])
        self.target_mean = moments.target_mean.copy() if centred else np.zeros(matrix.shape[1])
        if centred and self.shrinkage:
            self.target_mean = shrunk_mean(self.source_mean, self.target_mean, self.shrinkage)
        return self

    def _prior(self, gram: np.ndarray, cross: np.ndarray) -> float:
        """Return the weight of the identity; raise SettingError if the dimensions differ."""
        if self.shrinkage and cross.shape[0] != cross.shape[1]:
            raise SettingError(
                f"shrinkage requires equal dimensions, got {cross.shape[0]} and {cross.shape[1]}; "
                "use shrinkage=0"
            )
        return prior_weight(gram, self.shrinkage)


class Rotation(VectorMap):
    """Orthogonal map that minimises Σ ‖xW − y‖² subject to WᵀW = I (Cao 2020, Eq. 1; Kulshreshtha
    2020, Eqs. 1–3).

    As in all published versions, W may contain a reflection.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x, rotation = rng.normal(size=(100, 4)), np.linalg.qr(rng.normal(size=(4, 4)))[0]
        >>> bool(np.allclose(Rotation().fit(x, x @ rotation).matrix, rotation))
        True
    """

    kind = "rotation"

    def fit_moments(self, moments: Moments) -> Self:
        matrix = self._rotation(moments.raw_gram, moments.raw_cross)
        return self._set(matrix, moments, centred=False)

    def _rotation(self, gram: np.ndarray, cross: np.ndarray) -> np.ndarray:
        if cross.shape[0] != cross.shape[1]:
            raise SettingError(
                f"a rotation requires equal dimensions, got {cross.shape[0]} and {cross.shape[1]}"
            )
        if self.shrinkage == 1:
            return np.eye(len(cross))
        return procrustes(cross, self._prior(gram, cross))


class NormalizedRotation(Rotation):
    """Rotation between mean-centred vector spaces: x → (x − x̄)W + ȳ (Kulshreshtha 2020, §2.1, Eqs.
    4–5).

    The means are those of the vectors on which the map is fitted.
    """

    kind = "normalized-rotation"

    def fit_moments(self, moments: Moments) -> Self:
        matrix = self._rotation(moments.gram, moments.cross)
        return self._set(matrix, moments, centred=True)


class LinearMap(VectorMap):
    """Least-squares map that minimises Σ ‖xW − y‖² over all W (Mikolov et al. 2013; Multi-sense,
    Eq. 8).

    Args:
        centred: whether to fit an offset as well: x → (x − x̄)W + ȳ. The papers do not fit an
            offset.
        shrinkage: see `VectorMap`.
    """

    kind = "linear"

    def __init__(self, *, centred: bool = False, shrinkage: float = 0.0):
        super().__init__(shrinkage=shrinkage)
        self.centred = centred

    def fit_moments(self, moments: Moments) -> Self:
        gram, cross = moments.raw_gram, moments.raw_cross
        if self.centred:
            gram, cross = moments.gram, moments.cross
        if self.shrinkage == 1 and cross.shape[0] == cross.shape[1]:
            matrix = np.eye(len(cross))
        else:
            matrix = least_squares(gram, cross, self._prior(gram, cross))
        return self._set(matrix, moments, centred=self.centred)


def shrunk_mean(source_mean: np.ndarray, target_mean: np.ndarray, shrinkage: float) -> np.ndarray:
    """Return the mean to which a shrunk map shifts `source_mean`: `target_mean` if `shrinkage` is
    0, `source_mean` itself if it is 1.
    """
    if shrinkage == 1:
        return source_mean.copy()
    return source_mean + (1 - shrinkage) * (target_mean - source_mean)


KINDS: dict[str, type[VectorMap]] = {
    map_class.kind: map_class for map_class in (Rotation, NormalizedRotation, LinearMap)
}


def about_map(fitted: VectorMap) -> dict[str, Any]:
    """Return the record saved with a map: the kind of map or the import path of its class, the
    number of pairs, and the shrinkage unless it is 0.
    """
    map_class = type(fitted)
    import_path = f"{map_class.__module__}:{map_class.__qualname__}"
    is_own_class = KINDS.get(fitted.kind) is not map_class
    # A class defined in a script or in a function cannot be imported when the folder is opened.
    is_importable = is_path(import_path) and not import_path.startswith("__main__:")
    kind = import_path if is_own_class and is_importable else fitted.kind
    about = {"kind": kind, "pairs": fitted.n_pairs}
    return about | {"shrinkage": fitted.shrinkage} if fitted.shrinkage else about


def open_map(
    about: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    prefix: str,
    path: str | PathLike[str],
) -> VectorMap:
    """Rebuild a saved map from its record and arrays.

    Args:
        about: record of the map, see `about_map`.
        arrays: arrays of all maps in the folder, with their names as keys.
        prefix: prefix of the names of this map's arrays.
        path: path of the folder, for error messages.

    Raises:
        InputError: an array is not finite, the shapes do not match, or the class is not trusted
            (see `class_in_file`).
        SettingError: the kind of map is unknown.
    """
    kind = about["kind"]
    if kind not in KINDS and not is_path(kind):
        raise SettingError(
            f"kind of map must be one of {', '.join(KINDS)}, or package.module:Class, got {kind!r}"
        )
    map_class = KINDS.get(kind) or class_in_file(kind, VectorMap, path)
    parts = {name: arrays[f"{prefix}.{name}"] for name in ("matrix", "source_mean", "target_mean")}
    shapes = [array.shape for array in parts.values()]
    matrix_shape, source_shape, target_shape = shapes
    if matrix_shape != (*source_shape, *target_shape):
        raise InputError(
            f"map {prefix}: arrays have inconsistent shapes {shapes}; fit the maps again", path=path
        )
    for name, array in parts.items():
        # Values above the largest float32 become infinite when the map is applied.
        if not (np.abs(array) < np.finfo(np.float32).max).all():
            raise InputError(
                f"map {prefix}: {name} must contain only finite numbers; copy the folder again, or "
                "fit the maps again",
                path=path,
            )
    opened = map_class.from_arrays(parts, about["pairs"])
    opened.shrinkage = float(about.get("shrinkage", 0.0))
    return opened
