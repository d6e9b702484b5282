"""Estimate the fraction of wrong binary labels, and compute example weights that correct for them.

The weights follow Liu & Tao (2015), "Classification with noisy labels by importance reweighting". A
classifier trained on noisy labels with these weights minimises the expected loss on clean labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FlipRates:
    """Fraction of wrong labels in each true class: ρ₊ = P(labelled 0 | truly 1) and ρ₋ = P(labelled
    1 | truly 0).
    """

    positive: float
    negative: float

    @property
    def youden_index(self) -> float:
        """Youden's index of the labels, 1 − ρ₊ − ρ₋, which is 0 for random labels."""
        return 1.0 - self.positive - self.negative


def flip_rates(
    probabilities: np.ndarray, labels: np.ndarray, *, quantile: float = 0.05
) -> FlipRates:
    """Estimate flip rates from the predictions of a classifier for noisy labels (Liu & Tao 2015):

        ρ₋ = min_x P(y = 1 | x),   ρ₊ = min_x P(y = 0 | x)

    P(y = 1 | x) = (1 − ρ₊ − ρ₋) P(truly 1 | x) + ρ₋ is never below ρ₋, and equals ρ₋ for an example
    that is certainly not of class 1. If a class has no such certain example, the minima exceed the
    flip rates, see `absolute_error`.

    The paper uses the minimum of P̂. This estimate is far too low, because a classifier is
    confidently wrong for a few of many examples. Instead, this function estimates ρ₋ as the
    fraction of labels y = 1 among the examples with the lowest P̂. If P̂ was not trained on these
    labels, the expected fraction is never below ρ₋, even if P̂ is wrong.

    Args:
        probabilities: P̂(y = 1 | x) for each example, `[n]`.
        labels: noisy label y of each example, bool `[n]`.
        quantile: fraction of examples, those with the lowest or highest P̂, used per rate; with 0,
            the minima above are used.
    """
    if not quantile:
        return FlipRates(
            positive=float(1.0 - probabilities.max()), negative=float(probabilities.min())
        )
    by_probability = np.argsort(probabilities, kind="stable")
    count = max(1, round(quantile * len(labels)))
    lowest, highest = by_probability[:count], by_probability[-count:]
    return FlipRates(
        positive=float(1.0 - labels[highest].mean()), negative=float(labels[lowest].mean())
    )


def absolute_error(probabilities: np.ndarray, labels: np.ndarray, rates: FlipRates) -> float:
    """Return the mean |P̂(truly 1 | x) − y| over noisy labels, where P̂(truly 1 | x) = (P̂ − ρ₋) /
    (1 − ρ₊ − ρ₋), clipped to [0, 1].

    If fewer than half of the labels of each class are wrong, the error is lowest for the true
    classes (Ghosh et al. 2017, "Robust loss functions under label noise for deep neural networks").
    Therefore, the true flip rates lower the error, but rates estimated from a class without certain
    examples raise it. The log loss cannot distinguish these cases.

    Args:
        probabilities, labels: as in `flip_rates`, for examples on which P̂ was not trained.
        rates: flip rates; if both are 0, the labels are not corrected. If ρ₊ + ρ₋ is 1 or more, the
            error is 1.
    """
    if rates.youden_index <= 0:
        return 1.0
    clean = np.clip((probabilities - rates.negative) / rates.youden_index, 0.0, 1.0)
    return float(np.abs(clean - labels).mean())


def importance(probabilities: np.ndarray, labels: np.ndarray, rates: FlipRates) -> np.ndarray:
    """Return the example weights that make training on noisy labels equivalent to training on clean
    labels (Liu & Tao 2015):

        β(x, y) = P(y | x) / P̂(y | x) = (P̂(y | x) − ρ₋y) / ((1 − ρ₊ − ρ₋) P̂(y | x))

    Here, ρ₋y is the flip rate of the class other than y, and ρ₊ + ρ₋ must be below 1. Negative
    weights, which result from inexact estimates, are set to 0.

    Returns:
        non-negative weights, float64 `[n]`, which are 1 on average.
    """
    # P̂(y | x) of the label that each example has, and the flip rate of the other class
    label_probabilities = np.where(labels, probabilities, 1.0 - probabilities.astype(np.float64))
    other_rates = np.where(labels, rates.negative, rates.positive)
    return np.divide(
        np.maximum(label_probabilities - other_rates, 0.0),
        rates.youden_index * label_probabilities,
        out=np.zeros_like(label_probabilities),
        where=label_probabilities > 0,
    )
