"""Compiled loops over the rows of a text's vectors: sums by word type, and a sample of each type's rows."""

from __future__ import annotations

import numpy as np
from numba import njit

from calque.anchors.prefetch import fetch_row

_TOGETHER = 16  # rows of a type that are added up before they are added to its sum
_AHEAD = 2  # rows before its turn that one is fetched
_NONE = np.uint32(0xFFFFFFFF)


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
def two_sum(total, value):
    """A sum of two numbers as rounded, and what rounding has taken from it."""
    new = total + value
    grown = new - total
    return new, (total - (new - grown)) + (value - grown)


@njit(cache=True, nogil=True)
def add_length(square, lengths):
    """Add a squared norm and its root to their sums, exactly: float64 `[2, 2]`, sums and what they lost, changed."""
    lengths[0, 0], error = two_sum(lengths[0, 0], square)
    lengths[1, 0] += error
    lengths[0, 1], error = two_sum(lengths[0, 1], np.sqrt(square))
    lengths[1, 1] += error


def add_rows(
    data: np.ndarray, rows: np.ndarray, codes: np.ndarray, sums: np.ndarray, lost: np.ndarray, lengths: np.ndarray
) -> None:
    """Add `data[rows[i]]` to `sums[codes[i]]`, its squared norm and its norm to `lengths[codes[i]]`, all exactly.

    Args:
        data: float32 or float64 `[n, dim]`.
        rows, codes: int64 `[m]`, which rows and of which type, those of a type one after the other.
        sums, lost: float64 `[types, dim]`, changed; see `add_exactly`.
        lengths: float64 `[types, 2, 2]`, changed: sum and what it lost, of squares and of norms.
    """
    if data.dtype == np.float32:
        add_together(data, data.view(np.uint32), rows, codes, sums, lost, lengths)
    else:
        add_each(data, rows, codes, sums, lost, lengths)


@njit(cache=True, nogil=True)
def add_each(data, rows, codes, sums, lost, lengths):
    """`add_rows`, one after the other."""
    errors = np.empty(data.shape[1])
    for i in range(len(rows)):
        row, code = data[rows[i]], codes[i]
        add_length(square_of(row), lengths[code])
        add_exactly(row, sums[code], lost[code], errors)


@njit(cache=True, nogil=True)
def add_together(data, bits, rows, codes, sums, lost, lengths):
    """`add_rows` of float32: a few rows of a type are added to each other first, in plain float64, where that loses nothing.

    Args:
        bits: the data as uint32.
    """
    group, errors = np.empty(data.shape[1]), np.empty(data.shape[1])
    i = 0
    while i < len(rows):
        code, end = codes[i], i + 1
        while end < min(len(rows), i + _TOGETHER) and codes[end] == code:
            end += 1
        if end < len(rows):
            fetch_row(sums, codes[end])
        group[:] = 0.0
        least, squares = _NONE, 0.0
        for k in range(i, end):
            if k + _AHEAD < len(rows):
                fetch_row(data, rows[k + _AHEAD])
            least = min(least, smallest(bits[rows[k]]))
            square = add_plainly(data[rows[k]], group)
            add_length(square, lengths[code])
            squares += square
        if is_exact(least, squares):
            add_exactly(group, sums[code], lost[code], errors)
        else:
            for k in range(i, end):
                add_exactly(data[rows[k]], sums[code], lost[code], errors)
        i = end


@njit(cache=True, nogil=True)
def smallest(bits):
    """The smallest of some numbers but zero, without their signs: twice its bits less one, which are in their order."""
    least = _NONE
    for j in range(len(bits)):
        least = min(least, np.uint32((bits[j] << np.uint32(1)) - np.uint32(1)))  # of zero the largest there is
    return least


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def add_plainly(row, total):
    """Add a vector to a sum, and give its squared length."""
    square = 0.0
    for j in range(len(row)):
        value = np.float64(row[j])
        total[j] += value
        square += value * value
    return square


@njit(cache=True, nogil=True)
def is_exact(least, squares):
    """Whether float64 has added up to `_TOGETHER` float32 rows without rounding: all sums on the way are multiples of the
    last place of the smallest number, and not more than 2⁵³ of these.

    Args:
        least: of all rows, see `smallest`.
        squares: the sum of their squared norms; by Cauchy and Schwarz no sum of n numbers is beyond √(n · squares).
    """
    exponent = max(np.int64(least >> np.uint32(24)), 1)
    # The last place is 2^(exponent - 150), also of a subnormal number.
    return 2 * np.sqrt(_TOGETHER * squares) <= 2.0 ** (exponent - 150 + 53)


@njit(cache=True, nogil=True)
def divide(sums, lost, types, counts, vectors, squares):
    """Means of types: their sums by their counts.

    Args:
        sums, lost: float64 `[types, dim]`, see `add_exactly`.
        types: int64 `[n]`, which.
        counts: int64 `[n]`, of their occurrences.
        vectors: float32 `[n, dim]`, changed to the means.
        squares: float64 `[n]`, changed to their squared norms.
    """
    mean = np.empty(sums.shape[1])
    for i in range(len(types)):
        total, rest, count = sums[types[i]], lost[types[i]], np.float64(counts[i])
        for j in range(len(total)):
            mean[j] = (total[j] + rest[j]) / count
        for j in range(len(total)):
            vectors[i, j] = mean[j]
        squares[i] = square_of(mean)


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
