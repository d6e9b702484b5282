"""Similarities of words as a prior of the HMM and the sampler: which positions are likely before any word is counted.

With cosines c(i, j), the probability that target word j comes from position i is multiplied by

    g(i, j) = exp(w c(i, j)) / mean over i' of exp(w c(i', j))

in every conditional of the model, in training and in linking, and in the other direction by the same with the mean over j'.
A word that is equally similar to all positions changes nothing, and that of no position is multiplied by 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calque.errors import SettingError
from calque.wordalign.bitext import Bitext
from calque.wordalign.compiled import Compiled
from calque.wordalign.constants import F
from calque.wordalign.matrices import Similarities, room

odds = Compiled("calque.wordalign.loops.prior:odds")
PART = 1 << 24  # cells converted at a time


@dataclass(frozen=True)
class Prior:
    """What compiled loops take of it; all empty where there is none.

    Args:
        at: int64 `[n_sentences]`, where each sentence pair's odds begin, row by row as in the similarities.
        odds: float32 `[n_cells]`, exp(w c).
        forward, backward: float32 `[n_target_words]`, `[n_source_words]`; times these, the odds of a word have the mean 1.
    """

    at: np.ndarray
    odds: np.ndarray
    forward: np.ndarray
    backward: np.ndarray

    @classmethod
    def of(cls, similarities: Similarities | None, bitext: Bitext, weight: float) -> Prior:
        """That of a text; none without similarities.

        Raises:
            SettingError: the similarities are of other sentences.
        """
        if similarities is None:
            return cls(np.zeros(0, np.int64), *(np.zeros(0, F) for _ in range(3)))
        source, target = bitext.source, bitext.target
        sizes = np.diff(source.offsets), np.diff(target.offsets)
        if not (np.array_equal(similarities.rows, sizes[0]) and np.array_equal(similarities.columns, sizes[1])):
            raise SettingError(
                f"similarities of {len(similarities):,} sentence pairs that have other words than the {len(bitext):,} of the text"
            )
        ends, at = similarities.offsets, similarities.offsets[:-1].copy()
        made = cls(at, room(int(ends[-1]), F), np.empty(len(target.words), F), np.empty(len(source.words), F))
        first = 0
        while first < len(at):
            last = max(first + 1, int(np.searchsorted(ends, ends[first] + PART, side="right")) - 1)
            made.odds[ends[first] : ends[last]] = similarities.data[ends[first] : ends[last]]
            odds(first, last, at, source.offsets, target.offsets, float(weight), made.odds, made.forward, made.backward)
            first = last
        return made

    def direction(self, across: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the odds begin, the odds, and the scale of the observed words."""
        return self.at, self.odds, self.forward if across else self.backward
