"""L2 normalisation and mean-centring of vectors."""

from __future__ import annotations

import numpy as np

from calque.errors import SettingError

_BLOCK = 8192  # number of rows converted to float64 at a time


def unit_rows(x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Return the L2-normalised rows in float32; zero rows remain zero.

    Each row is divided by its norm. Dividing by the norm of the matrix, as in the code of Cao et
    al. (2020), disables CSLS.

    Args:
        x: vectors, `[n, dim]`, float16, float32 or float64, in memory or memory-mapped.
        rows: indices of the rows to return, in the order of the result, int64 `[n_rows]`; default:
            all rows.

    Returns:
        a new array, float32 `[n, dim]` or `[n_rows, dim]`. Norms are computed in float64.

    Raises:
        SettingError: a component of a vector is infinite or NaN.
    """
    n = len(x) if rows is None else len(rows)
    unit = np.empty((n, x.shape[1]), dtype=np.float32)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        block = x[start:stop] if rows is None else x[rows[start:stop]]
        block = np.asarray(block, dtype=np.float64)
        norms = np.sqrt(np.einsum("ij,ij->i", block, block))
        if not np.isfinite(norms).all():
            wrong = start + int(np.argmin(np.isfinite(norms)))
            if rows is not None:
                wrong = int(rows[wrong])
            raise SettingError(f"vector {wrong} must have finite components")
        unit[start:stop] = block / np.where(norms > 0, norms, 1.0)[:, None]
    return unit


def unit_centre_unit(
    x: np.ndarray, mean: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """L2-normalise rows, subtract the mean, and L2-normalise again (Artetxe et al. 2018; Cao et al.
    2020, §3.4).

    Args:
        x: vectors, `[n, dim]`.
        mean: mean to subtract, `[dim]`; default: the mean of the normalised rows of `x`. To
            normalise further vectors consistently, pass the mean that an earlier call returned.

    Returns:
        the normalised rows, float32 `[n, dim]`, and the subtracted mean, float64 `[dim]`.
    """
    unit = unit_rows(x)
    if mean is None:
        mean = unit.mean(axis=0, dtype=np.float64) if len(unit) else np.zeros(x.shape[1])
    mean = np.asarray(mean, dtype=np.float64)
    unit -= mean.astype(np.float32)
    return unit_rows(unit), mean
