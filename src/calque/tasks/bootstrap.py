"""Bootstrap over sentences, for figures that are functions of sums over sentences."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from calque.algebra import student

Statistic = Callable[[np.ndarray], np.ndarray]

KEPT = 400  # resamples that a record keeps, for comparisons
_DRAWS = 4_000_000  # counts held at once
_COMMON = 20180607  # of the drawing that all figures have in common


@dataclass(frozen=True)
class Measured:
    """A figure over all texts, and what it would have been over others.

    Attributes:
        value: over all texts.
        low, high: percentile interval over texts.
        resamples: the first `KEPT` figures of the drawing, to five digits; empty for none.
        texts: how many were drawn from.
    """

    value: float
    low: float
    high: float
    resamples: tuple[float, ...]
    texts: int

    @property
    def ends(self) -> tuple[float, float, float]:
        """Value, lower and upper end."""
        return self.value, self.low, self.high

    @property
    def kept(self) -> dict[str, Any]:
        """What a `Score` keeps of it."""
        return {"resamples": self.resamples, "texts": self.texts}

    def over_runs(self, runs: Sequence[float]) -> tuple[float, float, float]:
        """Value, lower and upper end of a mean over training runs: the interval says what other runs *and* other texts would
        have given.

        The variance is that of the mean over runs, `s² / n` with `n − 1` degrees of freedom, and that of the resamples; the
        interval is Student's, with quantiles weighted by the variances (Cochran and Cox 1950). Drawing
        runs as one draws texts would be far too
        narrow: three runs give a variance that is a third too small, and say little about how large it is. What runs and
        texts have in common is counted twice, so the interval is a little too wide rather than too narrow.

        Args:
            runs: the figure of each run, fractions. With fewer than two the interval is that over texts.
        """
        if len(runs) < 2 or not self.resamples:
            return self.ends
        half = student.half_width(student.over_runs(runs), student.over_resamples(self.resamples, self.texts))
        return self.value, max(0.0, self.value - half), min(1.0, self.value + half)


def measure(sums: np.ndarray, statistic: Statistic, *, samples: int = 1000) -> Measured:
    """A figure over all sentences, its interval, and its resamples.

    All figures are measured on the same drawing: its generator is seeded by the number of sentences and nothing else. So
    resample b of two methods on one test set has the same sentences, and the difference of the two is that of a paired
    test; test sets that are translations of one another, which have as many sentences, are drawn jointly. To sets of equal
    size that have nothing to do with each other it does no harm: what their resamples have in common is zero on average.

    Args:
        sums: `[n_sentences, n_sums]`, such as right answers and questions of each sentence.
        statistic: `[…, n_sums]` summed over sentences → `[…]`, such as their ratio.
        samples: how many times to draw; 0 for no interval (both ends are the value).
    """
    return measure_all([(sums, statistic)], samples=samples)[0]


def measure_all(figures: Sequence[tuple[np.ndarray, Statistic]], *, samples: int = 1000) -> list[Measured]:
    """The same for several figures over the same sentences, which are drawn once for all of them: drawing takes far
    longer than all the rest.

    Args:
        figures: `sums` and `statistic` of each.
        samples: see `measure`.
    """
    values, drawn = _drawn(figures, samples)
    texts = len(figures[0][0]) if figures else 0
    return [_measured(value, draws, texts) for value, draws in zip(values, drawn, strict=True)]


def over_groups(sums: np.ndarray, groups: Sequence[Hashable]) -> np.ndarray:
    """Return the sums of each group of texts, `[n_groups, …]`, in the order in which the groups begin; those of the texts where
    there are no groups.

    Texts that share something, such as questions on one passage, are not independent: whole groups must be resampled.

    Args:
        sums: `[n_texts, …]`.
        groups: what each text belongs to.
    """
    if not len(groups):
        return sums
    numbers: dict[Hashable, int] = {}
    of_text = [numbers.setdefault(group, len(numbers)) for group in groups]
    found = np.zeros((len(numbers), *sums.shape[1:]))
    np.add.at(found, of_text, sums)
    return found


def _measured(value: float, draws: np.ndarray, texts: int) -> Measured:
    return Measured(value, *ends_of(draws, value), tuple(float(f"{each:.5g}") for each in draws[:KEPT]), texts)


def _drawn(figures: Sequence[tuple[np.ndarray, Statistic]], samples: int) -> tuple[list[float], list[np.ndarray]]:
    """Return figures over all sentences, and over the sentences of each sample."""
    values = [float(statistic(np.asarray(sums).sum(axis=0, dtype=np.float64))) for sums, statistic in figures]
    drawn: list[list[np.ndarray]] = [[np.zeros(0)] for _ in figures]
    for counts in sampled(len(figures[0][0]) if figures else 0, samples):
        for blocks, (sums, statistic) in zip(drawn, figures, strict=True):
            blocks.append(np.asarray(statistic(counts @ np.asarray(sums, dtype=np.float64)), dtype=np.float64))
    return values, [np.concatenate(blocks) for blocks in drawn]


def intervals(sums: np.ndarray, statistic: Statistic, *, samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return many figures of one kind over all sentences, and the ends of their intervals, each `[n_figures]`, on the drawing
    that all figures have in common.

    Args:
        sums: `[n_sentences, …]`.
        statistic: `[samples, …]` summed over sentences → `[samples, n_figures]`.
        samples: see `measure`.
    """
    sums = np.asarray(sums, dtype=np.float64)
    shape, flat = sums.shape[1:], sums.reshape(len(sums), -1)
    values = np.asarray(statistic(flat.sum(axis=0).reshape(1, *shape)), dtype=np.float64)[0]
    drawn = [statistic((counts @ flat).reshape(len(counts), *shape)) for counts in sampled(len(sums), samples)]
    all_drawn = np.concatenate([np.zeros((0, len(values))), *drawn])
    ends = [ends_of(column, value) for column, value in zip(all_drawn.T, values, strict=True)]
    low, high = np.array(ends).reshape(-1, 2).T
    return values, low, high


def sampled(n: int, samples: int) -> Iterable[np.ndarray]:
    """Return how often each of `n` sentences is in each sample of the common drawing, float64 `[…, n]`, in blocks of samples.
    Drawing n of n sentences is drawing how often each comes: one multinomial vector."""
    return _kept(n, samples) if n * samples <= _DRAWS else _blocks(n, samples)


@lru_cache(2)
def _kept(n: int, samples: int) -> list[np.ndarray]:
    """Return the blocks of a small drawing, which the next figures over as many sentences have, too."""
    return list(_blocks(n, samples))


def _blocks(n: int, samples: int) -> Iterator[np.ndarray]:
    rng, rows = np.random.default_rng([_COMMON, n]), max(1, _DRAWS // max(1, n))
    for start in range(0, samples if n else 0, rows):
        yield rng.multinomial(n, np.full(n, 1 / n), size=min(rows, samples - start)).astype(np.float64)


def ends_of(drawn: np.ndarray, value: float) -> tuple[float, float]:
    """Return the 95% percentile interval (Efron and Tibshirani 1993, §13.3) of the figures drawn that are defined, or the value
    itself where none is."""
    figures = drawn[np.isfinite(drawn)]
    if not len(figures):
        return value, value
    low, high = np.quantile(figures, [0.025, 0.975])
    return float(low), float(high)


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Quotient; NaN, without a warning, where there is nothing to divide by."""
    return np.divide(
        numerator, denominator, out=np.full(np.shape(numerator), np.nan), where=np.asarray(denominator) != 0
    )


def accuracy(sums: np.ndarray) -> np.ndarray:
    """From right answers and questions."""
    return ratio(sums[..., 0], sums[..., 1])


def f1(sums: np.ndarray) -> np.ndarray:
    """From what is right, what was said and what is true; 0 where nothing is right, as CoNLL's script has it."""
    return np.nan_to_num(ratio(2.0 * sums[..., 0], sums[..., 1] + sums[..., 2]))
