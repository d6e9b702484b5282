"""Compiled loops over the rows of a text's vectors: sums by word type, and a sample of each type's rows."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def choose(codes, counts, most):
    """Rows to count: those whose type is wanted and has fewer than `most` occurrences yet.

    Args:
        codes: int64 `[n]`, each row's type, negative for none.
        counts: int64 `[types]`, occurrences counted so far, changed.
        most: at most so many.

    Returns:
        int64 `[m]`, in the order of the text.
    """
    rows = np.empty(len(codes), np.int64)
    n = 0
    for i in range(len(codes)):
        if codes[i] >= 0 and counts[codes[i]] < most:
            counts[codes[i]] += 1
            rows[n] = i
            n += 1
    return rows[:n]


# Sums may be taken in any order: only so can a row's norm use the processor's wide registers.
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def add_rows(data, rows, codes, sums, squares, norms):
    """`sums[codes[i]] += data[rows[i]]`, and the same of squared norms and of norms.

    Args:
        data: float32 or float64 `[n, dim]`.
        rows, codes: int64 `[m]`, which rows and of which type.
        sums: float64 `[types, dim]`, changed.
        squares, norms: float64 `[types]`, changed.
    """
    dim = data.shape[1]
    for i in range(len(rows)):
        row, total, square = data[rows[i]], sums[codes[i]], 0.0
        for j in range(dim):
            value = np.float64(row[j])
            total[j] += value
            square += value * value
        squares[codes[i]] += square
        norms[codes[i]] += np.sqrt(square)


@njit(cache=True, nogil=True)
def offer(codes, keys, held, slots, filled, n_rows):
    """Keep of each type the rows with the smallest keys: a uniform sample, if keys are uniform and independent.

    Args:
        codes: int64 `[m]`, type of each new row.
        keys: float64 `[m]`, its key.
        held: float64 `[types, size]`, keys of the rows kept so far, changed.
        slots: int64 `[types, size]`, where those rows are stored, changed.
        filled: int64 `[types]`, how many are kept, changed.
        n_rows: rows stored so far.

    Returns:
        places: int64 `[m]`, where to store each new row, −1 for nowhere; of equal places the last one counts.
        n_rows: rows stored now.
    """
    size = held.shape[1]
    places = np.full(len(codes), -1, np.int64)
    for i in range(len(codes)):
        t = codes[i]
        if filled[t] < size:
            slot = filled[t]
            filled[t] += 1
            slots[t, slot] = n_rows
            n_rows += 1
        else:
            slot = 0
            for s in range(1, size):
                if held[t, s] > held[t, slot]:
                    slot = s
            if keys[i] >= held[t, slot]:
                continue
        held[t, slot] = keys[i]
        places[i] = slots[t, slot]
    return places, n_rows


@njit(cache=True, nogil=True)
def store_rows(data, rows, places, stored):
    """`stored[places[i]] = data[rows[i]]` one after the other, where the place is not negative."""
    for i in range(len(rows)):
        if places[i] >= 0:
            stored[places[i]] = data[rows[i]]
