"""Percentile bootstrap over sentences, for figures that are functions of sums over sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Statistic = Callable[[np.ndarray], np.ndarray]

_DRAWS = 4_000_000  # counts held at once


def interval(
    sums: np.ndarray,
    statistic: Statistic,
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
    return intervals([(sums, statistic)], samples=samples, seed=seed, level=level)[0]


def intervals(
    figures: Sequence[tuple[np.ndarray, Statistic]], *, samples: int = 1000, seed: int = 0, level: float = 0.95
) -> list[tuple[float, float, float]]:
    """The same for several figures over the same sentences, which are drawn once for all of them: drawing takes far
    longer than all the rest.

    Args:
        figures: `sums` and `statistic` of each.
        samples, seed, level: see `interval`.
    """
    parts = [np.asarray(sums, dtype=np.float64) for sums, _ in figures]
    values = [float(statistic(part.sum(axis=0))) for part, (_, statistic) in zip(parts, figures, strict=True)]
    rng, n = np.random.default_rng(seed), len(parts[0]) if parts else 0
    drawn: list[list[np.ndarray]] = [[] for _ in figures]
    for start in range(0, samples if n else 0, max(1, _DRAWS // max(1, n))):
        rows = min(max(1, _DRAWS // n), samples - start)
        counts = rng.multinomial(n, np.full(n, 1 / n), size=rows).astype(np.float64)
        for found, part, (_, statistic) in zip(drawn, parts, figures, strict=True):
            found.append(np.asarray(statistic(counts @ part), dtype=np.float64))
    return [(value, *_ends(found, value, level)) for value, found in zip(values, drawn, strict=True)]


def _ends(drawn: list[np.ndarray], value: float, level: float) -> tuple[float, float]:
    """Quantiles of the figures drawn that are defined, or the value itself where none is."""
    figures = np.concatenate(drawn) if drawn else np.zeros(0)
    figures = figures[np.isfinite(figures)]
    if not len(figures):
        return value, value
    low, high = np.quantile(figures, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Quotient; NaN, without a warning, where there is nothing to divide by."""
    return np.divide(
        numerator, denominator, out=np.full(np.shape(numerator), np.nan), where=np.asarray(denominator) != 0
    )
