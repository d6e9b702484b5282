"""Percentile bootstrap over sentences, for figures that are functions of sums over sentences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_DRAWS = 4_000_000  # counts held at once


def interval(
    sums: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    *,
    samples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float, float]:
    """A figure over all sentences and its percentile interval (Efron and Tibshirani 1993, §13.3).

    Words of a sentence share their context, so whole sentences are drawn, with replacement. Drawing n of n
    sentences is drawing how often each comes: one multinomial vector, whose product with the per-sentence
    sums replaces the loop.

    Args:
        sums: `[n_sentences, n_sums]`, such as right answers and questions of each sentence.
        statistic: `[…, n_sums]` summed over sentences → `[…]`, such as their ratio.
        samples: how many times to draw; 0 for no interval (both ends are the value).
        seed: of the drawing.
        level: how much of the distribution the interval covers.

    Returns:
        value, lower and upper end. A sample whose figure is undefined (NaN) is left out.
    """
    sums = np.asarray(sums, dtype=np.float64)
    value = float(statistic(sums.sum(axis=0)))
    rng = np.random.default_rng(seed)
    n, drawn = len(sums), []
    if not n:
        return value, value, value
    for start in range(0, samples, max(1, _DRAWS // n)):
        rows = min(max(1, _DRAWS // n), samples - start)
        counts = rng.multinomial(n, np.full(n, 1 / n), size=rows)
        drawn.append(np.asarray(statistic(counts @ sums), dtype=np.float64))
    figures = np.concatenate(drawn) if drawn else np.zeros(0)
    figures = figures[np.isfinite(figures)]
    if not len(figures):
        return value, value, value
    low, high = np.quantile(figures, [(1 - level) / 2, (1 + level) / 2])
    return value, float(low), float(high)


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Quotient; NaN, without a warning, where there is nothing to divide by."""
    return np.divide(
        numerator, denominator, out=np.full(np.shape(numerator), np.nan), where=np.asarray(denominator) != 0
    )
