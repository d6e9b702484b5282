"""Student's t distribution, and variances of scores between runs and between texts, with their
degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

Part = tuple[float, float]  # variance estimate and its degrees of freedom


def tail(t: float, df: float) -> float:
    """Return the two-sided tail probability of `t` with `df` degrees of freedom."""
    # scipy.stats.t gives the same result, but takes a second to import.
    from scipy.special import stdtr

    return 2 * float(stdtr(df, -abs(t)))


@cache
def quantile(level: float, df: float) -> float:
    """Return the two-sided quantile of a confidence level, e.g. 1.96 for 0.95 and infinitely many
    degrees of freedom.
    """
    from scipy.special import stdtrit

    return -float(stdtrit(df, (1 - level) / 2))


def probability(gap: float, runs: Part, texts: Part) -> float:
    """Return the p-value of a difference, given its variance between runs and between texts.

    Satterthwaite's degrees of freedom work well for confidence intervals. In the far tail, which
    multiple-testing correction requires, they give p-values that are up to five times too small,
    because the variance of a few runs is often underestimated by chance. The threshold is therefore
    that of Cochran and Cox (1950): the mean of the quantiles for runs and for texts, weighted by
    their variances. These p-values are never too small; with three runs they are a few times too
    large.
    """
    variance = runs[0] + texts[0]
    if not variance:
        return 1.0 if not gap else 0.0
    t = abs(gap) / math.sqrt(variance)
    run_fraction = runs[0] / variance
    satterthwaite = tail(t, total([runs, texts])[1])
    one_source = not 1e-9 < run_fraction < 1 - 1e-9  # one of the two variances is 0
    if one_source or satterthwaite > 0.1:  # above 0.1, the result is clearly not significant
        return satterthwaite
    from scipy.special import stdtrit

    # Bisect for the p-value whose threshold equals t, on a logarithmic scale.
    low, high = math.log(1e-15), 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        p = math.exp(middle)
        run_quantile = -float(stdtrit(runs[1], p / 2))
        text_quantile = -float(stdtrit(texts[1], p / 2))
        threshold = run_fraction * run_quantile + (1 - run_fraction) * text_quantile
        if threshold < t:
            high = middle
        else:
            low = middle
    return max(satterthwaite, math.exp((low + high) / 2))


def over_runs(values: Sequence[float]) -> Part:
    """Return the variance of the mean over runs, `s² / n`, and its degrees of freedom; for a single
    run, the variance is 0.
    """
    n = len(values)
    if n < 2:
        return 0.0, 1
    return float(np.var(values, ddof=1)) / n, n - 1


def over_resamples(scores: Sequence[float] | np.ndarray, texts: int) -> Part:
    """Return the variance between bootstrap scores and its degrees of freedom: the number of texts
    or of resamples, whichever is smaller, minus 1. Undefined scores are ignored."""
    finite = np.asarray(scores, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if len(finite) < 2:
        return 0.0, 1
    return float(np.var(finite, ddof=1)), max(1, min(texts or len(finite), len(finite)) - 1)


def total(parts: Sequence[Part]) -> Part:
    """Return the sum of independent variance estimates and its degrees of freedom, `(Σ v)² / Σ (v²
    / df)` (Satterthwaite 1946). Estimates of 0 are ignored."""
    positive = [(variance, df) for variance, df in parts if variance > 0]
    variance = sum(variance for variance, _ in positive)
    weight = sum(component**2 / df for component, df in positive)
    return variance, variance**2 / weight if weight > 0 else math.inf


def half_width(runs: Part, texts: Part) -> float:
    """Return half the width of the 95% confidence interval of an estimate, with quantiles weighted
    as in `probability`.
    """
    variance = runs[0] + texts[0]
    if not variance:
        return 0.0
    weighted = 0.0
    for component, df in (runs, texts):
        if component:
            weighted += component * quantile(0.95, round(df, 6))
    return weighted / variance * math.sqrt(variance)
