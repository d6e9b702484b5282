"""How dense every language is around every word of a collection: r of CSLS."""

from __future__ import annotations

import threading
from itertools import combinations_with_replacement

import numpy as np

from calque.errors import CalqueError
from calque.explore.collection import Collection
from calque.progress import bar

K = 10  # neighbourhood of CSLS, as in the papers


class Stopped(CalqueError):
    """The computation was called off."""


class Neighbourhoods:
    """Computes the mean cosine of every word with its `K` nearest words of every language.

    Attributes:
        lock: held for each pair of languages; who else computes with PyTorch meanwhile takes it too, as the precision of
            products is a setting of the whole process.
        progress: show a bar on standard error.
    """

    def __init__(self, *, progress: bool = False):
        self.lock = threading.Lock()
        self.progress = progress
        self._stop = False

    def stop(self) -> None:
        """Call off what runs: it raises `Stopped` after the pair of languages that it is at."""
        self._stop = True

    def check(self) -> None:
        """Whether to go on.

        Raises:
            Stopped: it was called off.
        """
        if self._stop:
            raise Stopped("the explorer is shutting down")

    def __call__(self, data: np.ndarray, covered: np.ndarray | None, collection: Collection) -> np.ndarray:
        """float32 `[n_languages, n_words]`; 0 for a word without a vector.

        Args:
            data: rows of length 1.
            covered: bool `[n_words]`, which words have a vector; None for all.
        """
        import torch

        from calque.algebra.similarity import csls_neighbours, largest_products

        rows = [_rows(collection.rows(lang), covered) for lang in collection.languages]
        hubness = np.zeros((len(rows), len(data)), dtype=np.float32)
        pairs = list(combinations_with_replacement(range(len(rows)), 2))
        total = sum(len(rows[a]) * len(rows[b]) for a, b in pairs)
        with bar(total, unit="pair", title="neighbourhoods", show=self.progress, scaled=True) as shown:
            for a, b in pairs:
                self.check()
                if not len(rows[a]) or not len(rows[b]):
                    continue
                x, y = (torch.from_numpy(_part(data, rows[side])) for side in (a, b))
                with self.lock:
                    if a != b:
                        nobody = np.zeros(0, dtype=np.int64)
                        found = csls_neighbours(x, y, k=K, source_queries=nobody, target_queries=nobody)
                        hubness[b, rows[a]], hubness[a, rows[b]] = found.source_hubness, found.target_hubness
                    elif len(rows[a]) > 1:
                        values, _ = largest_products(x, y, K + 1)
                        hubness[a, rows[a]] = values[:, 1:].mean(
                            axis=1, dtype=np.float64
                        )  # the first of each is itself
                shown.update(len(rows[a]) * len(rows[b]))
        return hubness


def _rows(language: slice, covered: np.ndarray | None) -> np.ndarray:
    rows = np.arange(language.start, language.stop)
    return rows if covered is None else rows[np.asarray(covered[language])]


def _part(data: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows as a matrix; a view where they lie side by side."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return np.asarray(data[rows[0] : rows[-1] + 1])
    return np.ascontiguousarray(data[rows])
