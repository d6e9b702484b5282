"""Bootstrap confidence intervals over sentences, for statistics that are computed from sums over
sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from calque.algebra import student

Statistic = Callable[[np.ndarray], np.ndarray]

KEPT = 400  # number of bootstrap values saved with a score, for comparisons
_BLOCK = 4_000_000  # maximum number of values in a block of sampling counts, which limits memory
_SEED = 20180607  # all scores use this seed, so their bootstrap samples are paired


@dataclass(frozen=True)
class Measured:
    """Value of a statistic over all texts, with its bootstrap percentile interval over texts.

    Attributes:
        resamples: values on the first `KEPT` bootstrap samples, rounded to five digits; empty if
            there are no samples.
        texts: number of texts.
    """

    value: float
    low: float
    high: float
    resamples: tuple[float, ...]
    texts: int

    @property
    def ends(self) -> tuple[float, float, float]:
        """The value, and the lower and upper end of its interval."""
        return self.value, self.low, self.high

    @property
    def kept(self) -> dict[str, Any]:
        """Attributes of a `Score` that store the bootstrap results."""
        return {"resamples": self.resamples, "texts": self.texts}

    def over_runs(self, runs: Sequence[float]) -> tuple[float, float, float]:
        """Return the mean over training runs, and the ends of its confidence interval over both
        runs and texts.

        Two variances are added: that of the mean over runs, `s² / n` with `n − 1` degrees of
        freedom, and that of the resamples. The interval uses Student's quantiles weighted by both
        variances (Cochran and Cox 1950), as resampling few runs would give far too narrow
        intervals. The interval is slightly too wide, as both variances include the noise of single
        answers.

        Args:
            runs: value of each run. If there are fewer than two runs, the interval over texts is
                returned.
        """
        if len(runs) < 2 or not self.resamples:
            return self.ends
        half = student.half_width(
            student.over_runs(runs), student.over_resamples(self.resamples, self.texts)
        )
        return self.value, max(0.0, self.value - half), min(1.0, self.value + half)


def measure(sums: np.ndarray, statistic: Statistic, *, samples: int = 1000) -> Measured:
    """Compute a statistic over all sentences, with its bootstrap interval.

    The bootstrap samples depend only on the number of sentences. Sample b therefore contains the
    same sentences for every method, so differences between methods are paired. Test sets that are
    translations of each other have the same number of sentences and are resampled jointly. For
    unrelated test sets of equal size, the pairing has no effect on average.

    Args:
        sums: counts for each sentence `[n_sentences, n_sums]`, such as the number of correct
            answers and of test items.
        statistic: function that maps counts summed over sentences `[…, n_sums]` to values `[…]`,
            such as a ratio.
        samples: number of bootstrap samples. If 0, both ends of the interval equal the value.
    """
    return measure_all([(sums, statistic)], samples=samples)[0]


def measure_all(
    figures: Sequence[tuple[np.ndarray, Statistic]], *, samples: int = 1000
) -> list[Measured]:
    """Compute several statistics on the same bootstrap samples, which takes little longer than
    computing a single one.

    Args:
        figures: pairs of the arguments `sums` and `statistic` of `measure`, one pair for each value
            to compute.
        samples: see `measure`.
    """
    texts, drawn = len(figures[0][0]) if figures else 0, [[np.zeros(0)] for _ in figures]
    for counts in sampled(texts, samples):
        for blocks, (sums, statistic) in zip(drawn, figures, strict=True):
            blocks.append(
                np.asarray(statistic(counts @ np.asarray(sums, dtype=np.float64)), dtype=np.float64)
            )
    measured = []
    for blocks, (sums, statistic) in zip(drawn, figures, strict=True):
        draws, value = (
            np.concatenate(blocks),
            float(statistic(np.asarray(sums).sum(axis=0, dtype=np.float64))),
        )
        resamples = tuple(float(f"{each:.5g}") for each in draws[:KEPT])
        measured.append(Measured(value, *ends_of(draws, value), resamples, texts))
    return measured


def over_groups(sums: np.ndarray, groups: Sequence[Hashable]) -> np.ndarray:
    """Sum the counts of each group's texts, `[n_groups, …]`; groups are in order of occurrence.
    Without groups, return `sums`.

    Some texts are not independent, such as questions on one passage, so the bootstrap must resample
    whole groups.

    Args:
        sums: counts for each text `[n_texts, …]`.
        groups: group of each text, or an empty sequence.
    """
    if not len(groups):
        return sums
    numbers: dict[Hashable, int] = {}
    of_text = [numbers.setdefault(group, len(numbers)) for group in groups]
    found = np.zeros((len(numbers), *sums.shape[1:]))
    np.add.at(found, of_text, sums)
    return found


def intervals(
    sums: np.ndarray, statistic: Statistic, *, samples: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the values of many statistics over all sentences, and their lower and upper interval
    ends, each `[n_figures]`.

    Args:
        sums: counts for each sentence `[n_sentences, …]`.
        statistic: function that maps counts summed over sentences `[samples, …]` to values
            `[samples, n_figures]`.
        samples: see `measure`.
    """
    sums = np.asarray(sums, dtype=np.float64)
    shape, flat = sums.shape[1:], sums.reshape(len(sums), -1)
    values = np.asarray(statistic(flat.sum(axis=0).reshape(1, *shape)), dtype=np.float64)[0]
    drawn = [
        statistic((counts @ flat).reshape(len(counts), *shape))
        for counts in sampled(len(sums), samples)
    ]
    all_drawn = np.concatenate([np.zeros((0, len(values))), *drawn])
    ends = [ends_of(column, value) for column, value in zip(all_drawn.T, values, strict=True)]
    low, high = np.array(ends).reshape(-1, 2).T
    return values, low, high


def sampled(n: int, samples: int) -> Iterable[np.ndarray]:
    """Return how often each of `n` sentences is drawn in each bootstrap sample, float64 `[…, n]`,
    in blocks of samples. The counts in a sample follow a multinomial distribution. Results of
    moderate size are cached."""
    return _cached(n, samples) if n * samples <= _BLOCK else _blocks(n, samples)


@lru_cache(2)
def _cached(n: int, samples: int) -> list[np.ndarray]:
    return list(_blocks(n, samples))


def _blocks(n: int, samples: int) -> Iterator[np.ndarray]:
    rng, rows = np.random.default_rng([_SEED, n]), max(1, _BLOCK // max(1, n))
    for start in range(0, samples if n else 0, rows):
        yield rng.multinomial(n, np.full(n, 1 / n), size=min(rows, samples - start)).astype(
            np.float64
        )


def ends_of(drawn: np.ndarray, value: float) -> tuple[float, float]:
    """Return the 95% percentile interval (Efron and Tibshirani 1993, §13.3) of the finite values of
    `drawn`. If no value is finite, both ends are `value`."""
    figures = drawn[np.isfinite(drawn)]
    if not len(figures):
        return value, value
    low, high = np.quantile(figures, [0.025, 0.975])
    return float(low), float(high)


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Return the quotient, or NaN where the denominator is zero."""
    undefined = np.full(np.shape(numerator), np.nan)
    return np.divide(numerator, denominator, out=undefined, where=np.asarray(denominator) != 0)


def accuracy(sums: np.ndarray) -> np.ndarray:
    """Return the accuracy, given the number of correct answers and the number of test items."""
    return ratio(sums[..., 0], sums[..., 1])


def f1(sums: np.ndarray) -> np.ndarray:
    """Return the F1 from the numbers of correct, predicted and gold items; 0 if no item is correct,
    as in CoNLL's script.
    """
    return np.nan_to_num(ratio(2.0 * sums[..., 0], sums[..., 1] + sums[..., 2]))
