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


@numba.njit(nogil=True, cache=True)
def draw_bytes(out, seed, first):
    """Fill with random bits, eight bytes at a time: the numbers `first…` of a splitmix64 sequence (Steele et al. 2014).

    Args:
        out: uint64 `[n]`, out.
        seed: uint64, of the sequence.
        first: number of the first.
    """
    step = np.uint64(0x9E3779B97F4A7C15)
    one, two = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
    state = seed + np.uint64(first) * step
    for i in range(np.uint64(len(out))):
        bits = state + (i + np.uint64(1)) * step
        bits = (bits ^ (bits >> np.uint64(30))) * one
        bits = (bits ^ (bits >> np.uint64(27))) * two
        out[i] = bits ^ (bits >> np.uint64(31))


@numba.njit(nogil=True, cache=True, fastmath={"nnan", "nsz"})
def scan_kept(tile, row_bias, column_bias, limit, seed, first_row, forward, largest, backward):
    """Of entries less a bias, each 0 unless its random byte is below `limit`, the largest of each row and of each column.

    Args:
        tile: float32 `[rows, all columns]`, the similarities of rows `first_row…`.
        row_bias, column_bias: float32 `[all rows]` and `[all columns]`.
        limit: 256 keeps all.
        seed: uint64, see `draw_bytes`; each row takes two stretches of the sequence, whichever tile it is in.
        forward: int32 `[all rows]`, where the largest entry less the column's bias is; out.
        largest: float32 `[all columns]`, the largest entry less the row's bias so far; changed in place.
        backward: int32 `[all columns]`, its row; changed in place.
    """
    n_rows, n_columns = np.uint64(tile.shape[0]), np.uint64(tile.shape[1])
    first, bound = np.uint64(first_row), np.int32(limit)
    stretch = (n_columns + np.uint64(7)) // np.uint64(8)
    words = np.empty(stretch, dtype=np.uint64)
    drawn = words.view(np.uint8)
    scores = np.empty(n_columns, dtype=np.float32)
    # The sign of a difference is what is multiplied by: a comparison would become a branch that nobody can predict.
    shift, one = np.int32(31), np.int32(1)
    for i in range(n_rows):
        row, at = tile[i], np.uint64(2) * (first + i)
        draw_bytes(words, seed, at * stretch)
        best = np.float32(-np.inf)
        for j in range(n_columns):
            score = (row[j] - column_bias[j]) * np.float32((np.int32(drawn[j]) - bound) >> shift & one)
            scores[j] = score
            best = max(best, score)
        place = np.uint64(0)
        while scores[place] != best:
            place += np.uint64(1)
        forward[first + i] = np.int32(place)
        draw_bytes(words, seed, (at + np.uint64(1)) * stretch)
        less, name = row_bias[first + i], np.int32(first + i)
        for j in range(n_columns):
            so_far, row_so_far = largest[j], backward[j]
            score = (row[j] - less) * np.float32((np.int32(drawn[j]) - bound) >> shift & one)
            backward[j] = name if score > so_far else row_so_far
            largest[j] = max(score, so_far)
