"""Bootstrap intervals of many figures from one drawing of sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

_DRAWS = 4_000_000  # counts drawn at once, as in `calque.tasks.bootstrap`
_KEPT = 16_000_000  # counts kept for the next figures


class Resamples:
    """How often each sentence comes when n of n are drawn with replacement, `samples` times.

    Every figure is computed on the same drawings, so the intervals are those of `calque.tasks.bootstrap.interval`, and a
    hundred figures cost hardly more than one.

    Args:
        n: sentences.
        samples: how many times to draw; 0 for no intervals (both ends are the value).
        seed: of the drawing.
    """

    def __init__(self, n: int, *, samples: int = 1000, seed: int = 0):
        self.n, self.samples, self.seed = n, samples, seed
        self._kept: list[np.ndarray] | None = None

    def _blocks(self) -> Iterator[np.ndarray]:
        if self._kept is not None:
            yield from self._kept
            return
        blocks = []
        rng, rows = np.random.default_rng(self.seed), max(1, _DRAWS // max(self.n, 1))
        for start in range(0, self.samples if self.n else 0, rows):
            size = min(rows, self.samples - start)
            block = rng.multinomial(self.n, np.full(self.n, 1 / self.n), size=size).astype(np.float64)
            if self.n * self.samples <= _KEPT:
                blocks.append(block)
            yield block
        if self.n * self.samples <= _KEPT:
            self._kept = blocks

    def intervals(
        self, sums: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], *, level: float = 0.95
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Figures over all sentences and their percentile intervals.

        Args:
            sums: `[n, …]`, whatever is summed over sentences.
            statistic: `[samples, …]` summed → `[samples, n_figures]`.
            level: how much of the distribution an interval covers.

        Returns:
            values, lower and upper ends, each `[n_figures]`. Samples in which a figure is undefined are left out of its
            interval; an interval that no sample defines is the value.
        """
        sums = np.asarray(sums, dtype=np.float64)
        shape, flat = sums.shape[1:], sums.reshape(self.n, -1)
        values = np.asarray(statistic(flat.sum(axis=0).reshape(1, *shape)), dtype=np.float64)[0]
        drawn = [statistic((block @ flat).reshape(len(block), *shape)) for block in self._blocks()]
        low, high = values.copy(), values.copy()
        if drawn:
            figures = np.concatenate(drawn)
            for column in range(figures.shape[1]):
                known = figures[np.isfinite(figures[:, column]), column]
                if len(known):
                    low[column], high[column] = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
        return values, low, high

    def interval(
        self, sums: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], *, level: float = 0.95
    ) -> tuple[float, float, float]:
        """One figure and its interval; `statistic` is `[samples, …]` → `[samples]`, else as in `intervals`."""
        value, low, high = self.intervals(sums, lambda drawn: statistic(drawn)[..., None], level=level)
        return float(value[0]), float(low[0]), float(high[0])
