"""The loop that makes a prior of similarities."""

from __future__ import annotations

import math

from calque.wordalign.constants import F
from calque.wordalign.loops import loop


@loop
def odds(first, last, at, source_offsets, target_offsets, weight, values, forward, backward):
    """Turn cosines into odds, in place, for sentence pairs from `first` to before `last`.

    Args:
        at: int64 `[n_sentences]`, where the matrix of each begins in `values`.
        weight: what a cosine is multiplied by.
        values: float32 `[n_cells]`, cosines, NaN for a word without a vector; out: exp(weight * cosine), and the mean of these
            where there is none.
        forward, backward: float32 by target word and by source word, out: what makes the mean of its odds 1.
    """
    for b in range(first, last):
        top, left = source_offsets[b], target_offsets[b]
        n, m = source_offsets[b + 1] - top, target_offsets[b + 1] - left
        cells = values[at[b] : at[b] + n * m]
        total, known = 0.0, 0
        for k in range(n * m):
            if cells[k] == cells[k]:
                cells[k] = math.exp(weight * cells[k])
                total += cells[k]
                known += 1
        mean = F(total / known) if known else F(1)
        for j in range(m):
            forward[left + j] = 0
        for i in range(n):
            across = F(0)
            for j in range(m):
                if cells[i * m + j] != cells[i * m + j]:
                    cells[i * m + j] = mean
                across += cells[i * m + j]
                forward[left + j] += cells[i * m + j]
            backward[top + i] = F(m) / across if m else F(1)
        for j in range(m):
            forward[left + j] = F(n) / forward[left + j] if n else F(1)
