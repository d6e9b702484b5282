"""Compiled inner loops of the neighbour sweep: running top-k lists, and exact inner products of chosen pairs.

Imported only by `calque.algebra.sweep`, when it runs on the CPU. Every function holds no lock while it runs
(nogil), so that each thread of the sweep scans its own tiles.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def _insert(values, indices, value, index):
    """Put `value` into a list sorted from large to small; of equals, the first to come stays in front."""
    place = len(values) - 1
    while place > 0 and values[place - 1] < value:
        values[place] = values[place - 1]
        indices[place] = indices[place - 1]
        place -= 1
    values[place] = value
    indices[place] = index


@numba.njit(nogil=True, cache=True)
def scan_rows(tile, bias, values, indices, biased_values, biased_indices, first_row, first_column, group):
    """Take a tile's entries into two lists of their rows: by value, and by value less the column's bias.

    Nearly every group of neighbouring entries holds nothing for a list, so the time goes into comparing a
    group with the last values of the lists. That loop becomes vector instructions only if its indices are
    unsigned (a signed one may be negative and wrap) and its length is an argument (a constant one is
    unrolled into scalar code first).

    Args:
        tile: float32 `[rows, columns]`, the similarities of rows `first_row…` with columns `first_column…`.
        bias: float32 `[all columns]`.
        values, indices: float32 and int32 `[all rows, keep]`, each row sorted from large to small; changed
            in place. Lists full of +inf take nothing in.
        biased_values, biased_indices: the second list, whose width may differ.
        group: how many entries to compare before any is looked at singly.
    """
    n_rows, n_columns, group = np.uint64(tile.shape[0]), np.uint64(tile.shape[1]), np.uint64(group)
    first_row, first_column = np.uint64(first_row), np.uint64(first_column)
    last, biased_last = np.uint64(values.shape[1] - 1), np.uint64(biased_values.shape[1] - 1)
    less = bias[first_column : first_column + n_columns]
    for i in range(n_rows):
        row = tile[i]
        kept, names = values[first_row + i], indices[first_row + i]
        biased_kept, biased_names = biased_values[first_row + i], biased_indices[first_row + i]
        lowest, biased_lowest = kept[last], biased_kept[biased_last]
        for start in range(np.uint64(0), n_columns, group):
            stop = min(start + group, n_columns)
            hit = False
            for j in range(start, stop):
                hit |= (row[j] > lowest) | (row[j] - less[j] > biased_lowest)
            if not hit:
                continue
            for j in range(start, stop):
                if row[j] > lowest:
                    _insert(kept, names, row[j], np.int32(first_column + j))
                    lowest = kept[last]
                if row[j] - less[j] > biased_lowest:
                    _insert(biased_kept, biased_names, row[j] - less[j], np.int32(first_column + j))
                    biased_lowest = biased_kept[biased_last]


@numba.njit(nogil=True, cache=True)
def scan_columns(
    tile, bias, values, indices, lowest, biased_values, biased_indices, biased_lowest, first_row, first_column, group
):
    """The same for the lists of the columns, without transposing the tile; `bias` is of all rows.

    Args:
        lowest, biased_lowest: float32 `[all columns]`, the last value of each list, in a row of their own so
            that a group of columns is compared at once; changed in place.
    """
    n_rows, n_columns, group = np.uint64(tile.shape[0]), np.uint64(tile.shape[1]), np.uint64(group)
    first_row, first_column = np.uint64(first_row), np.uint64(first_column)
    last, biased_last = np.uint64(values.shape[1] - 1), np.uint64(biased_values.shape[1] - 1)
    bound = lowest[first_column : first_column + n_columns]
    biased_bound = biased_lowest[first_column : first_column + n_columns]
    for i in range(n_rows):
        row = tile[i]
        less = bias[first_row + i]
        name = np.int32(first_row + i)
        for start in range(np.uint64(0), n_columns, group):
            stop = min(start + group, n_columns)
            hit = False
            for j in range(start, stop):
                hit |= (row[j] > bound[j]) | (row[j] - less > biased_bound[j])
            if not hit:
                continue
            for j in range(start, stop):
                column = first_column + j
                if row[j] > bound[j]:
                    _insert(values[column], indices[column], row[j], name)
                    bound[j] = values[column, last]
                if row[j] - less > biased_bound[j]:
                    _insert(biased_values[column], biased_indices[column], row[j] - less, name)
                    biased_bound[j] = biased_values[column, biased_last]


@numba.njit(nogil=True, cache=True)
def merge(values, indices, more_values, more_indices):
    """Merge two sets of lists into the first: the largest of both, among equals the smaller index."""
    n, keep = values.shape
    best = np.empty(keep, dtype=values.dtype)
    names = np.empty(keep, dtype=indices.dtype)
    for i in range(n):
        a = b = 0
        for place in range(keep):
            left, right = values[i, a], more_values[i, b]
            if left > right or (left == right and indices[i, a] <= more_indices[i, b]):
                best[place], names[place] = left, indices[i, a]
                a += 1
            else:
                best[place], names[place] = right, more_indices[i, b]
                b += 1
        values[i] = best
        indices[i] = names


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def dot_pairs(x, y, rows, columns, out):
    """Inner products in float64 of float32 vectors, pair by pair: `out[p] = x[rows[p]] · y[columns[p]]`.

    Every product runs through the same instructions, so equal vectors give equal numbers and a tie stays a
    tie.
    """
    dim = x.shape[1]
    for pair in range(len(rows)):
        left, right = x[rows[pair]], y[columns[pair]]
        total = 0.0
        for t in range(dim):
            total += np.float64(left[t]) * np.float64(right[t])
        out[pair] = total
