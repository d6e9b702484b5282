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


# A square is summed in any order: only so can a row's norm use the processor's wide registers.
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def square_of(row):
    """Squared length of a vector."""
    square = 0.0
    for j in range(len(row)):
        value = np.float64(row[j])
        square += value * value
    return square


@njit(cache=True, nogil=True)
def add_exactly(value, total, lost, errors):
    """Add a vector to a sum without loss: `total` is the sum as rounded, `lost` what rounding has taken from it.

    The error of each addition is known exactly (Knuth, The Art of Computer Programming, volume 2, section 4.2.2, theorem
    B) and is summed beside it. With 106 bits for numbers of 24, `total + lost` is the exact sum, rounded once: the same
    bits whatever the order, and however the text was cut into parts. Sums of few numbers lose nothing, and their `lost`
    is not touched: it takes no memory where it is all zero.

    Args:
        value: float32 or float64 `[n]`.
        total, lost: float64 `[n]`, changed.
        errors: float64 `[n]`, room to work in.
    """
    inexact = False
    for j in range(len(value)):
        x, old = np.float64(value[j]), total[j]
        new = old + x
        grown = new - old
        total[j], errors[j] = new, (old - (new - grown)) + (x - grown)
    for j in range(len(value)):
        inexact |= errors[j] != 0.0
    if inexact:
        for j in range(len(value)):
            lost[j] += errors[j]


@njit(cache=True, nogil=True)
def add_rows(data, rows, codes, sums, lost, lengths):
    """Add `data[rows[i]]` to `sums[codes[i]]`, its squared norm and its norm to `lengths[codes[i]]`, all exactly.

    Args:
        data: float32 or float64 `[n, dim]`.
        rows, codes: int64 `[m]`, which rows and of which type.
        sums, lost: float64 `[types, dim]`, changed; see `add_exactly`.
        lengths: float64 `[types, 2, 2]`, changed: sum and what it lost, of squares and of norms.
    """
    length, errors = np.empty(2), np.empty(max(2, data.shape[1]))
    for i in range(len(rows)):
        row, code = data[rows[i]], codes[i]
        length[0] = square_of(row)
        length[1] = np.sqrt(length[0])
        add_exactly(row, sums[code], lost[code], errors)
        add_exactly(length, lengths[code, 0], lengths[code, 1], errors)


@njit(cache=True, nogil=True)
def join_rows(theirs, codes, sums, lost):
    """Add sums over another part of the text, or what they lost, to ours.

    Args:
        theirs: float64 `[n, dim]`, of other types.
        codes: int64 `[n]`, which type of ours each is, negative for none.
        sums, lost: float64 `[types, dim]`, changed.
    """
    errors = np.empty(theirs.shape[1])
    for i in range(len(codes)):
        if codes[i] >= 0:
            add_exactly(theirs[i], sums[codes[i]], lost[codes[i]], errors)


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
