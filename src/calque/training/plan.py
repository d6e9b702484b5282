"""What each update sees: a pure function of the seed, so that a run can stop and go on anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

from calque.errors import SettingError

T_co = TypeVar("T_co", covariant=True)


class Plan(Protocol[T_co]):
    """What the updates are.

    Attributes:
        steps_per_epoch: how many each epoch has.
    """

    @property
    def steps_per_epoch(self) -> int: ...

    def epoch(self, number: int) -> Sequence[T_co]:
        """The updates of an epoch; a pure function of its number, so that a resumed run sees the same."""
        ...


class BatchPlan:
    """Equal batches from several corpora; the shorter ones are gone through again until the longest ends (Cao 2020).

    Args:
        sizes: number of sentence pairs of each corpus.
        batch: sentence pairs per corpus and update.
        seed: order of the pairs.
    """

    def __init__(self, sizes: Sequence[int], *, batch: int, seed: int):
        if batch < 1:
            raise SettingError(f"batch must be at least 1, got {batch}")
        if not min(sizes, default=0):
            raise SettingError("nothing to train on: a corpus has no sentence pair with a usable link")
        self._sizes, self._batch, self._seed = sizes, batch, seed
        self.steps_per_epoch = -(-max(sizes) // batch)

    def epoch(self, number: int) -> list[list[np.ndarray]]:
        """The updates of one epoch: `[step][corpus]` → indices of sentence pairs, int64.

        Every batch is of the full size but the longest corpus's last one, and a corpus smaller than one batch gives all
        it has. No pair stands twice in a batch (it would be its own negative example).
        """
        columns = [self._column(number, corpus) for corpus in range(len(self._sizes))]
        return [list(step) for step in zip(*columns, strict=True)]

    def _column(self, number: int, corpus: int) -> list[np.ndarray]:
        rng = np.random.default_rng([self._seed, corpus, number])
        batches: list[np.ndarray] = []
        while len(batches) < self.steps_per_epoch:
            order = rng.permutation(self._sizes[corpus])
            full = len(order) // self._batch * self._batch
            batches.extend(order[:full].reshape(-1, self._batch))
            # The rest of a round: the longest corpus's last batch, or all of a corpus below one batch. A shorter corpus
            # with full batches leaves its rest out; the next round shuffles it in again.
            longest = len(order) > (self.steps_per_epoch - 1) * self._batch
            if full < len(order) and (longest or full == 0):
                batches.append(order[full:])
        return batches[: self.steps_per_epoch]


class LanguagePlan:
    """Batches of a single language each, drawn with equal chances, whatever the amounts of text; each language's texts are
    gone through in random order, and again.

    Args:
        groups: int `[n]`, the language of each text.
        per_epoch: texts in an epoch.
    """

    def __init__(self, groups: np.ndarray, *, batch: int, per_epoch: int, seed: int):
        self._texts = [np.flatnonzero(groups == group) for group in np.unique(groups)]
        if not self._texts:
            raise SettingError("nothing to train on: there is no text")
        self._batch, self._seed = batch, seed
        self.steps_per_epoch = -(-per_epoch // batch)

    def epoch(self, number: int) -> list[list[np.ndarray]]:
        """As of `BatchPlan`: the updates of one epoch, a pure function of its number."""
        rng = np.random.default_rng([self._seed, number])
        drawn = rng.integers(len(self._texts), size=self.steps_per_epoch)
        needed = np.bincount(drawn, minlength=len(self._texts)) * self._batch
        orders = [
            np.concatenate([rng.permutation(texts) for _ in range(-(-int(n) // len(texts)))] or [texts[:0]])
            for texts, n in zip(self._texts, needed, strict=True)
        ]
        place, updates = [0] * len(orders), []
        for group in drawn:
            updates.append([orders[group][place[group] : place[group] + self._batch]])
            place[group] += self._batch
        return updates
