"""Bootstrap confidence intervals over sentences, for statistics that are computed from sums over
sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from calque.algebra import student
from calque.tasks.base import Score

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
        """Arguments of a `Score` that store the bootstrap results. `score` sets them."""
        return {"resamples": self.resamples, "texts": self.texts}

    def score(
        self,
        *,
        task: str,
        data: str,
        languages: tuple[str, ...],
        metric: str,
        n: int,
        seed: int,
        settings: Mapping[str, object],
        percent: bool = True,
        runs: tuple[float, ...] = (),
    ) -> Score:
        """Return a `Score` with this value, its interval and its bootstrap samples; see `Score` for
        the arguments.
        """
        return Score(
            task,
            data,
            languages,
            metric,
            self.value,
            self.low,
            self.high,
            n,
            seed,
            settings,
            percent,
            runs=runs,
            resamples=self.resamples,
            texts=self.texts,
        )

    def over_runs(self, runs: Sequence[float]) -> Measured:
        """Return the mean over training runs with its confidence interval over both runs and texts.

        Two variances are added: that of the mean over runs, `s² / n` with `n − 1` degrees of
        freedom, and that of the resamples. The interval uses Student's quantiles weighted by both
        variances (Cochran and Cox 1950), as resampling few runs would give far too narrow
        intervals. The interval is slightly too wide, as both variances include the noise of single
        answers.

        Args:
            runs: value of each run. If there are fewer than two runs, the interval over texts is
                kept.
        """
        if len(runs) < 2 or not self.resamples:
            return self
        half = student.half_width(
            student.over_runs(runs), student.over_resamples(self.resamples, self.texts)
        )
        # The value is a fraction, so the interval is cut at 0 and 1.
        return replace(self, low=max(0.0, self.value - half), high=min(1.0, self.value + half))


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
    statistics: Sequence[tuple[np.ndarray, Statistic]], *, samples: int = 1000
) -> list[Measured]:
    """Compute several statistics on the same bootstrap samples, which takes little longer than
    computing a single one.

    Args:
        statistics: pairs of the arguments `sums` and `statistic` of `measure`, one pair for each
            value to compute.
        samples: see `measure`.
    """
    texts = len(statistics[0][0]) if statistics else 0
    # Blocks of bootstrap values of each statistic. The empty block covers `samples=0`.
    blocks = [[np.zeros(0)] for _ in statistics]
    for draw_counts in sampled(texts, samples):
        for values, (sums, statistic) in zip(blocks, statistics, strict=True):
            # A sample is given by how often each sentence is drawn, so its sums are one product.
            drawn_sums = draw_counts @ np.asarray(sums, dtype=np.float64)
            values.append(np.asarray(statistic(drawn_sums), dtype=np.float64))
    measured = []
    for values, (sums, statistic) in zip(blocks, statistics, strict=True):
        value = float(statistic(np.asarray(sums).sum(axis=0, dtype=np.float64)))
        drawn = np.concatenate(values)
        # Five digits keep the files small; comparisons need no more.
        resamples = tuple(float(f"{resample:.5g}") for resample in drawn[:KEPT])
        low, high = ends_of(drawn, value)
        measured.append(Measured(value, low, high, resamples, texts))
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
    # Groups are numbered by first occurrence, so translations of a text get the same groups.
    index_of: dict[Hashable, int] = {}
    group_of_text = [index_of.setdefault(group, len(index_of)) for group in groups]
    group_sums = np.zeros((len(index_of), *sums.shape[1:]))
    np.add.at(group_sums, group_of_text, sums)
    return group_sums


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
    shape = sums.shape[1:]
    flat = sums.reshape(len(sums), -1)
    values = np.asarray(statistic(flat.sum(axis=0).reshape(1, *shape)), dtype=np.float64)[0]
    blocks = [np.zeros((0, len(values)))]
    for draw_counts in sampled(len(sums), samples):
        drawn_sums = draw_counts @ flat
        blocks.append(statistic(drawn_sums.reshape(len(draw_counts), *shape)))
    drawn = np.concatenate(blocks)
    ends = [ends_of(column, value) for column, value in zip(drawn.T, values, strict=True)]
    low, high = np.array(ends).reshape(-1, 2).T
    return values, low, high


def sampled(n: int, samples: int) -> Iterable[np.ndarray]:
    """Return how often each of `n` sentences is drawn in each bootstrap sample, float64 `[…, n]`,
    in blocks of samples. The counts in a sample follow a multinomial distribution. Results of
    moderate size are cached."""
    if n * samples <= _BLOCK:
        return _cached_blocks(n, samples)
    return _blocks(n, samples)


@lru_cache(2)
def _cached_blocks(n: int, samples: int) -> list[np.ndarray]:
    return list(_blocks(n, samples))


def _blocks(n: int, samples: int) -> Iterator[np.ndarray]:
    if not n:
        return
    # The seed depends on n alone, so all encoders and translated test sets get the same samples.
    rng = np.random.default_rng([_SEED, n])
    block_size = max(1, _BLOCK // n)
    for start in range(0, samples, block_size):
        draw_counts = rng.multinomial(n, np.full(n, 1 / n), size=min(block_size, samples - start))
        yield draw_counts.astype(np.float64)


def ends_of(drawn: np.ndarray, value: float) -> tuple[float, float]:
    """Return the 95% percentile interval (Efron and Tibshirani 1993, §13.3) of the finite values of
    `drawn`. If no value is finite, both ends are `value`."""
    # A ratio is NaN in samples without test items.
    finite = drawn[np.isfinite(drawn)]
    if not len(finite):
        return value, value
    low, high = np.quantile(finite, [0.025, 0.975])
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
