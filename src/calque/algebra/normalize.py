"""Row normalisation: unit length and centring."""

from __future__ import annotations

import numpy as np

from calque.errors import SettingError

_BLOCK = 8192  # rows converted to float64 at a time


def unit_rows(x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Rows scaled to length 1, in float32; a zero row stays zero.

    Each row is divided by its own norm. Dividing by the norm of the whole matrix, as copies of Cao et al.'s
    (2020) code do, leaves cosines unscaled and silently disables CSLS.

    Args:
        x: `[n, dim]`, float16, float32 or float64, in memory or mapped.
        rows: take only these rows, int64 `[n_rows]`, in this order; all if None.

    Returns:
        float32 `[n, dim]` or `[n_rows, dim]`, always a new array. Norms are taken in float64.

    Raises:
        SettingError: a vector has an infinite or undefined component.
    """
    n = len(x) if rows is None else len(rows)
    unit = np.empty((n, x.shape[1]), dtype=np.float32)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        block = np.asarray(x[start:stop] if rows is None else x[rows[start:stop]], dtype=np.float64)
        norms = np.sqrt(np.einsum("ij,ij->i", block, block))
        if not np.isfinite(norms).all():
            wrong = start + int(np.flatnonzero(~np.isfinite(norms))[0])
            wrong = wrong if rows is None else int(rows[wrong])
            raise SettingError(f"vector {wrong} has a component that is not a finite number")
        unit[start:stop] = block / np.where(norms > 0, norms, 1.0)[:, None]
    return unit


def unit_centre_unit(x: np.ndarray, mean: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Unit length, subtract the mean, unit length again (Artetxe et al. 2018; Cao et al. 2020, §3.4).

    Args:
        x: `[n, dim]`.
        mean: `[dim]`, subtract this one rather than the mean of `x`: words outside the table that the mean
            was taken from must move by the same vector.

    Returns:
        float32 `[n, dim]`, and the mean that was subtracted, float64 `[dim]`.
    """
    unit = unit_rows(x)
    if mean is None:
        mean = unit.mean(axis=0, dtype=np.float64) if len(unit) else np.zeros(x.shape[1])
    mean = np.asarray(mean, dtype=np.float64)
    unit -= mean.astype(np.float32)
    return unit_rows(unit), mean
