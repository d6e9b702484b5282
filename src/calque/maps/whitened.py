"""The steps of vecmap: whitening, an orthogonal map, re-weighting, de-whitening, fewer dimensions (Artetxe et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from calque.errors import SettingError

Side = Literal["source", "target"]


@dataclass(frozen=True)
class Whitened:
    """Which steps are taken (Artetxe, Labaka & Agirre 2018, AAAI, §3; the defaults are those of their ACL 2018 system).

    Args:
        whiten: give the dictionary's vectors of each side unit covariance first (step 1).
        reweight: powers of the singular values, which are the cross-correlations, that the components of source and
            target are multiplied with (step 3).
        dewhiten: whose covariance source and target get back (step 4), or None; needs `whiten`.
        dims: keep only so many components (step 5). They are padded with zeros to the old number, so that the vectors
            still fit where others of the encoder do.
    """

    whiten: bool = True
    reweight: tuple[float, float] = (0.5, 0.5)
    dewhiten: tuple[Side | None, Side | None] = ("source", "target")
    dims: int | None = None

    def __post_init__(self):
        if any(self.dewhiten) and not self.whiten:
            raise SettingError("de-whitening undoes whitening: whiten, or dewhiten=(None, None)")
        if self.dims is not None and self.dims < 1:
            raise SettingError(f"dims={self.dims}, expected 1 or more")

    def solve(self, x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The two maps into the common space.

        Args:
            x, z: float64 `[n_pairs, dim]`, vectors of the pairs (unit length, centred, unit length in the paper).

        Returns:
            float64 `[dim, dim]` for the source and for the target side.
        """
        white_x = white_z = back_x = back_z = None
        cross = x.T @ z
        if self.whiten:
            (white_x, back_x), (white_z, back_z) = _roots(x.T @ x), _roots(z.T @ z)
            cross = white_x @ cross @ white_z
        u, s, vt = np.linalg.svd(cross, full_matrices=False)
        turns = u, vt.T
        # A covariance is given back in the coordinates that its own side's rotation leads to.
        backs = {"source": (back_x, turns[0]), "target": (back_z, turns[1])}
        maps = []
        for turn, white, power, whose in zip(turns, (white_x, white_z), self.reweight, self.dewhiten, strict=True):
            matrix = (turn if white is None else white @ turn) * s**power
            if whose is not None:
                back, rotation = backs[whose]
                matrix = matrix @ (rotation.T @ back @ rotation)
            matrix = matrix[:, : self.dims]
            maps.append(np.pad(matrix, ((0, 0), (0, len(turn) - matrix.shape[1]))))
        return maps[0], maps[1]


def _roots(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inverse square root of a symmetric matrix, and its square root; directions in which there is nothing get 0."""
    values, vectors = np.linalg.eigh(gram)
    filled = values > values[-1] * len(values) * np.finfo(np.float64).eps
    root = np.sqrt(np.where(filled, values, 0.0))
    inverse = np.where(filled, 1 / np.where(filled, root, 1.0), 0.0)
    return vectors * inverse @ vectors.T, vectors * root @ vectors.T
