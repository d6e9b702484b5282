"""Word similarities as a prior for the links of the HMM and the Gibbs sampler.

With cosines c(i, j) and weight w, the unnormalised probability that target word j is aligned to
position i is multiplied by

    g(i, j) = exp(w c(i, j)) / mean over i' of exp(w c(i', j))

both in training and in link extraction. The other direction uses the mean over j'. The prior has no
effect on a word that is equally similar to the words at all positions, and it leaves the
unnormalised probability of null alignment unchanged.
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
    """Prior in the form that compiled loops use; all arrays are empty if there is no prior.

    Attributes:
        at: index in `odds` of the first cell of each sentence pair, int64 `[n_sentences]`.
        odds: exp(w c) for the cells of each sentence pair in row-major order, float32 `[n_cells]`.
        forward, backward: factor that scales the odds of each target or source word to a mean of 1,
            float32 `[n_words]`.
    """

    at: np.ndarray
    odds: np.ndarray
    forward: np.ndarray
    backward: np.ndarray


def prior_of(similarities: Similarities | None, bitext: Bitext, weight: float) -> Prior:
    """Return the prior for a text, which is empty if there are no similarities.

    Raises:
        SettingError: the shapes of the similarities do not match the sentence pairs.
    """
    if similarities is None:
        nothing = np.zeros(0, F)
        return Prior(np.zeros(0, np.int64), nothing, nothing, nothing)
    source, target = bitext.source, bitext.target
    same_rows = np.array_equal(similarities.rows, np.diff(source.offsets))
    same_columns = np.array_equal(similarities.columns, np.diff(target.offsets))
    if not (same_rows and same_columns):
        raise SettingError(
            f"similarities must match the numbers of words in the {len(bitext):,} sentence pairs "
            f"of the text, got different numbers for {len(similarities):,} sentence pairs"
        )
    prior = Prior(
        at=similarities.offsets[:-1].copy(),
        odds=mapped_array((len(similarities.data),), F, MEMORY),
        forward=np.empty(len(target.words), F),
        backward=np.empty(len(source.words), F),
    )
    prior.odds[:] = similarities.data
    fill_odds(source.offsets, target.offsets, float(weight), prior)
    return prior


@loop
def fill_odds(source_offsets, target_offsets, weight, prior):
    """Replace each cosine in `prior.odds` with exp(weight · cosine), and NaN (for a word without a
    vector) with the mean odds of the sentence pair. Fill `prior.forward` and `prior.backward`.
    """
    for b in range(len(prior.at)):
        top, left = source_offsets[b], target_offsets[b]
        n, m = source_offsets[b + 1] - top, target_offsets[b + 1] - left
        cells = prior.odds[prior.at[b] : prior.at[b] + n * m]
        forward, backward = prior.forward, prior.backward
        total, known = 0.0, 0
        for k in range(n * m):
            # A cell that differs from itself is NaN.
            if cells[k] == cells[k]:
                cells[k] = math.exp(weight * cells[k])
                total += cells[k]
                known += 1
        mean = F(total / known) if known else F(1)
        # Sum the odds of each row and column. The factor is the number of cells divided by the sum.
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
