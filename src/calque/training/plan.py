"""Plans that assign data to updates. A plan depends only on the seed, so a run can resume at any
update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

from calque.errors import SettingError

T_co = TypeVar("T_co", covariant=True)


class Plan(Protocol[T_co]):
    """Interface that every training plan implements: it divides the training data into the updates
    of each epoch.

    Attributes:
        steps_per_epoch: number of updates in an epoch.
    """

    @property
    def steps_per_epoch(self) -> int: ...

    def epoch(self, number: int) -> Sequence[T_co]:
        """Return the data of each update of an epoch, which depends only on the epoch number."""
        ...


class BatchPlan:
    """Plan with batches of equal size from several corpora; shorter corpora repeat until the
    longest corpus ends (Cao 2020).

    Args:
        sizes: number of sentence pairs in each corpus.
        batch: number of sentence pairs from each corpus in an update.
        seed: random seed for the order of the sentence pairs.
    """

    def __init__(self, sizes: Sequence[int], *, batch: int, seed: int):
        if batch < 1:
            raise SettingError(f"batch must be at least 1, got {batch}")
        if not min(sizes, default=0):
            raise SettingError(
                "nothing to train on: a corpus has no sentence pair with a usable word link"
            )
        self._sizes, self._batch, self._seed = sizes, batch, seed
        self.steps_per_epoch = -(-max(sizes) // batch)

    def epoch(self, number: int) -> list[list[np.ndarray]]:
        """Return the updates of an epoch: for each update, the indices of its sentence pairs in
        each corpus, int64.

        All batches have the full size, except the last batch of the longest corpus and batches of a
        corpus that is smaller than a batch, which contain the whole corpus. No batch contains a
        pair twice, because a pair would then be its own negative.
        """
        columns = [self._column(number, corpus) for corpus in range(len(self._sizes))]
        return [list(step) for step in zip(*columns, strict=True)]

    def _column(self, number: int, corpus: int) -> list[np.ndarray]:
        """Return the batches of one corpus in an epoch, one for each update."""
        rng = np.random.default_rng([self._seed, corpus, number])
        batches: list[np.ndarray] = []
        while len(batches) < self.steps_per_epoch:
            order = rng.permutation(self._sizes[corpus])
            n_full = len(order) // self._batch * self._batch  # number of pairs in full batches
            batches.extend(order[:n_full].reshape(-1, self._batch))
            # The longest corpus keeps its incomplete last batch. A corpus smaller than a batch
            # forms one batch. Other corpora skip the incomplete batch, and its pairs are shuffled
            # again in the next pass.
            is_longest = len(order) > (self.steps_per_epoch - 1) * self._batch
            if n_full < len(order) and (is_longest or n_full == 0):
                batches.append(order[n_full:])
        return batches[: self.steps_per_epoch]


class LanguagePlan:
    """Plan with monolingual batches. The language of each batch is drawn uniformly. The texts of a
    language are repeated, in a new random order for each pass.

    Args:
        groups: index of the language of each text, int `[n]`.
        per_epoch: number of texts in an epoch.
    """

    def __init__(self, groups: np.ndarray, *, batch: int, per_epoch: int, seed: int):
        self._texts = [np.flatnonzero(groups == group) for group in np.unique(groups)]
        if not self._texts:
            raise SettingError("nothing to train on: there is no text")
        self._batch, self._seed = batch, seed
        self.steps_per_epoch = -(-per_epoch // batch)

    def epoch(self, number: int) -> list[list[np.ndarray]]:
        """Return the updates of an epoch; see `BatchPlan.epoch`."""
        rng = np.random.default_rng([self._seed, number])
        language_of_update = rng.integers(len(self._texts), size=self.steps_per_epoch)
        n_texts = np.bincount(language_of_update, minlength=len(self._texts)) * self._batch
        orders = []  # texts of each language in the order in which they are used
        for texts, n in zip(self._texts, n_texts.tolist(), strict=True):
            n_passes = -(-n // len(texts))
            passes = [rng.permutation(texts) for _ in range(n_passes)]
            orders.append(np.concatenate([texts[:0], *passes]))
        next_text = [0] * len(orders)
        updates = []
        for language in language_of_update:
            begin = next_text[language]
            updates.append([orders[language][begin : begin + self._batch]])
            next_text[language] += self._batch
        return updates
