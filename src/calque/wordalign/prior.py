"""Similarities of words as a prior of the HMM and the sampler: which positions are likely before any word is counted.

With cosines c(i, j), the probability that target word j comes from position i is multiplied by

    g(i, j) = exp(w c(i, j)) / mean over i' of exp(w c(i', j))

in every conditional of the model, in training and in linking, and in the other direction by the same with the mean over j'.
A word that is equally similar to all positions changes nothing, and that of no position is multiplied by 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from calque.errors import SettingError
from calque.storage import mapped_array
from calque.wordalign.bitext import Bitext, F, loop
from calque.wordalign.similarity import MEMORY, Similarities


class Prior(NamedTuple):
    """A prior as compiled loops read it; all arrays are empty where there is none.

    Attributes:
        at: int64 `[n_sentences]`, where each sentence pair's odds begin, row by row as in the similarities.
        odds: float32 `[n_cells]`, exp(w c).
        forward, backward: float32 `[n_target_words]`, `[n_source_words]`; times these, the odds of a word have the mean 1.
    """

    at: np.ndarray
    odds: np.ndarray
    forward: np.ndarray
    backward: np.ndarray


def prior_of(similarities: Similarities | None, bitext: Bitext, weight: float) -> Prior:
    """Return the prior of a text; an empty one without similarities.

    Raises:
        SettingError: the similarities are of other sentences.
    """
    if similarities is None:
        return Prior(np.zeros(0, np.int64), *(np.zeros(0, F) for _ in range(3)))
    source, target = bitext.source, bitext.target
    sizes = np.diff(source.offsets), np.diff(target.offsets)
    if not (np.array_equal(similarities.rows, sizes[0]) and np.array_equal(similarities.columns, sizes[1])):
        raise SettingError(
            f"similarities of {len(similarities):,} sentence pairs that have other words than the {len(bitext):,} of the text"
        )
    ends = similarities.offsets
    words = np.empty(len(target.words), F), np.empty(len(source.words), F)
    made = Prior(ends[:-1].copy(), mapped_array((int(ends[-1]),), F, MEMORY), *words)
    made.odds[:] = similarities.data
    fill_odds(source.offsets, target.offsets, float(weight), made)
    return made


@loop
def fill_odds(source_offsets, target_offsets, weight, prior):
    """Turn cosines into odds, in place.

    Args:
        weight: what a cosine is multiplied by.
        prior: its odds are cosines before, NaN for a word without a vector; afterwards exp(weight * cosine), and the mean of
            these where there is none. `forward` and `backward` are filled.
    """
    for b in range(len(prior.at)):
        top, left = source_offsets[b], target_offsets[b]
        n, m = source_offsets[b + 1] - top, target_offsets[b + 1] - left
        cells, forward, backward = prior.odds[prior.at[b] : prior.at[b] + n * m], prior.forward, prior.backward
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
