"""Vectors into vectors: what every map is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import numpy as np

from calque.algebra.procrustes import Moments
from calque.errors import SettingError
from calque.storage import vectors_room


class VectorMap(ABC):
    """A map of source vectors into the target's space: `y ≈ (x − source_mean) @ matrix + target_mean`.

    Vectors are rows. The means are part of the map: without them it is another function.

    Attributes:
        matrix: `[source_dim, target_dim]` float64; None before `fit`.
        source_mean, target_mean: `[dim]` float64, zero for maps that do not centre.
        n_pairs: vectors it was fitted on.
    """

    #: what it is called in files and on the command line
    kind: ClassVar[str]

    def __init__(self):
        self.matrix: np.ndarray | None = None
        self.source_mean: np.ndarray | None = None
        self.target_mean: np.ndarray | None = None
        self.n_pairs = 0

    def fit(self, source: np.ndarray, target: np.ndarray) -> Self:
        """Fit on paired vectors `[n, dim]`; the result is self."""
        return self.fit_moments(Moments.of(source, target))

    @abstractmethod
    def fit_moments(self, moments: Moments) -> Self:
        """Fit on what `Moments` kept of any number of pairs."""

    def transform(self, vectors: np.ndarray, side: Literal["source", "target"] = "source") -> np.ndarray:
        """Map vectors `[n, dim]` of one side into the common space, which is the target's: target vectors stay.

        The result has the type of the input; the product is computed in float32, or in float64 for float64 input.
        """
        if side == "target":
            return vectors
        if self.matrix is None or self.source_mean is None or self.target_mean is None:
            raise SettingError("this map has not been fitted yet: call fit first")
        if vectors.shape[1] != len(self.matrix):
            raise SettingError(f"vectors of {vectors.shape[1]} dimensions for a map of {len(self.matrix)}")
        dtype = np.float64 if vectors.dtype == np.float64 else np.float32
        offset = (self.target_mean - self.source_mean @ self.matrix).astype(dtype)
        mapped = vectors_room(len(vectors), self.matrix.shape[1], dtype)
        np.matmul(vectors.astype(dtype, copy=False), self.matrix.astype(dtype), out=mapped)
        mapped += offset
        return mapped.astype(vectors.dtype, copy=False)

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file has to keep."""
        if self.matrix is None or self.source_mean is None or self.target_mean is None:
            raise SettingError("this map has not been fitted yet: there is nothing to save")
        return {"matrix": self.matrix, "source_mean": self.source_mean, "target_mean": self.target_mean}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], n_pairs: int = 0) -> Self:
        """The map that `arrays` described."""
        fitted = cls()
        fitted.matrix, fitted.n_pairs = np.array(arrays["matrix"]), n_pairs
        fitted.source_mean, fitted.target_mean = np.array(arrays["source_mean"]), np.array(arrays["target_mean"])
        return fitted

    def _set(self, matrix: np.ndarray, moments: Moments, *, centred: bool) -> Self:
        if moments.n == 0:
            raise SettingError("no pairs to fit a map on: the text has no word links that the encoder covers")
        self.matrix, self.n_pairs = matrix, moments.n
        self.source_mean = moments.source_mean.copy() if centred else np.zeros(matrix.shape[0])
        self.target_mean = moments.target_mean.copy() if centred else np.zeros(matrix.shape[1])
        return self
