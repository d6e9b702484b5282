"""Loops over the links of two directions."""

from __future__ import annotations

import numpy as np

from calque.wordalign.loops import loop


@loop
def join(
    a_offsets, a_source, a_target, a_posterior, b_offsets, b_source, b_target, b_posterior, n_sentences, method,
    sentence, source, target, posterior, states, weights, rows, columns,
):  # fmt: skip
    """Write the links of both directions that a method keeps into `sentence`, `source`, `target` and `posterior`, which hold all
    links of both; `states` and `weights` have room for the cells of a sentence pair, `rows` and `columns` for its sides.

    Returns:
        how many there are.
    """
    n = 0
    for k in range(n_sentences):
        height = width = 0
        for i in range(a_offsets[k], a_offsets[k + 1]):
            height, width = max(height, a_source[i] + 1), max(width, a_target[i] + 1)
        for i in range(b_offsets[k], b_offsets[k + 1]):
            height, width = max(height, b_source[i] + 1), max(width, b_target[i] + 1)
        if height == 0:
            continue
        # Bit 1: forward has the link. Bit 2: backward has it. Bit 4: it is in the result.
        state, weight = states[: height * width], weights[: height * width]
        row, column = rows[:height], columns[:width]
        for cell in range(height * width):
            state[cell] = 0
            weight[cell] = 0
        for s in range(height):
            row[s] = False
        for t in range(width):
            column[t] = False
        for i in range(a_offsets[k], a_offsets[k + 1]):
            cell = a_source[i] * width + a_target[i]
            state[cell] |= 1
            weight[cell] += np.float32(0.5) * a_posterior[i]
        for i in range(b_offsets[k], b_offsets[k + 1]):
            cell = b_source[i] * width + b_target[i]
            state[cell] |= 2
            weight[cell] += np.float32(0.5) * b_posterior[i]
        for s in range(height):
            for t in range(width):
                cell = s * width + t
                if state[cell] == 3 or (method == 1 and state[cell] > 0):
                    state[cell] |= 4
                    row[s] = column[t] = True
        if method >= 2:
            _grow(state, row, column)
        if method >= 3:
            for direction in (1, 2):
                _final(state, row, column, direction, method == 4)
        if method < 0:
            _alone(state, height, width)
        for s in range(height):
            for t in range(width):
                if state[s * width + t] & 4:
                    sentence[n], source[n], target[n], posterior[n] = k, s, t, weight[s * width + t]
                    n += 1
    return n


@loop
def _alone(state, height, width):
    """Take every link out of the result whose row or column has another one; bit 8 says that it was in."""
    for s in range(height):
        for t in range(width):
            if state[s * width + t] & 4:
                met = 0
                for i in range(width):
                    met += (state[s * width + i] & 12) > 0
                for i in range(height):
                    met += (state[i * width + t] & 12) > 0
                if met > 2:
                    state[s * width + t] ^= 12


@loop
def _grow(state, row, column):
    height, width = len(row), len(column)
    added = True
    while added:
        added = False
        for s in range(height):
            for t in range(width):
                if not state[s * width + t] & 4:
                    continue
                for ds, dt in ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)):
                    i, j = s + ds, t + dt
                    if i < 0 or j < 0 or i >= height or j >= width:
                        continue
                    if state[i * width + j] & 4 or not state[i * width + j] & 3:
                        continue
                    if not row[i] or not column[j]:
                        state[i * width + j] |= 4
                        row[i] = column[j] = added = True


@loop
def _final(state, row, column, direction, both):
    height, width = len(row), len(column)
    for s in range(height):
        for t in range(width):
            if state[s * width + t] & 4 or not state[s * width + t] & direction:
                continue
            if (not row[s] and not column[t]) if both else (not row[s] or not column[t]):
                state[s * width + t] |= 4
                row[s] = column[t] = True
