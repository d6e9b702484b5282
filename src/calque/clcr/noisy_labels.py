"""Labels of two classes of which some are wrong: how many, and what each example must weigh to make up for that.

Importance reweighting (Liu & Tao 2015, "Classification with noisy labels by importance reweighting"): a classifier that is
trained with these weights on noisy labels minimises, on average, the loss that it would have on clean ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FlipRates:
    """How often labels are wrong: ρ₊ = P(labelled 0 | truly 1) and ρ₋ = P(labelled 1 | truly 0)."""

    positive: float
    negative: float

    @property
    def left(self) -> float:
        """1 − ρ₊ − ρ₋."""
        return 1.0 - self.positive - self.negative


def flip_rates(probabilities: np.ndarray, labels: np.ndarray, *, quantile: float = 0.05) -> FlipRates:
    """Estimate flip rates from a classifier of the noisy labels (Liu & Tao 2015), after

        ρ₋ = min_x P(y = 1 | x),   ρ₊ = min_x P(y = 0 | x)

    as P(y = 1 | x) = (1 − ρ₊ − ρ₋) P(truly 1 | x) + ρ₋ is never below ρ₋, and is as low where an example is certainly not
    of class 1. Where no example is certainly of one class, these are no flip rates: see `absolute_error`.

    They take the minimum of P̂. A network's P̂ goes on falling beyond the edge of a class, and of many examples there is
    always one about which it is wrongly sure, so that this is far too low. Here it is the fraction with y = 1 of the examples
    with the lowest P̂. If P̂ does not know their labels, its mean is never below ρ₋, however wrong P̂ is.

    Args:
        probabilities: P̂(y = 1 | x) of examples, `[n]`.
        labels: bool `[n]`, their y.
        quantile: fraction of the examples that are those with the lowest P̂, at each end; 0 takes the minimum of P̂.
    """
    if not quantile:
        return FlipRates(positive=float(1.0 - probabilities.max()), negative=float(probabilities.min()))
    ends, count = np.argsort(probabilities, kind="stable"), max(1, round(quantile * len(labels)))
    return FlipRates(positive=float(1.0 - labels[ends[-count:]].mean()), negative=float(labels[ends[:count]].mean()))


def absolute_error(probabilities: np.ndarray, labels: np.ndarray, rates: FlipRates) -> float:
    """Return the mean |P̂(truly 1 | x) − y| over noisy labels, where P̂(truly 1 | x) = (P̂ − ρ₋) / (1 − ρ₊ − ρ₋) within 0 and 1.

    If fewer than half of the labels of each class are wrong, this is lowest for the true classes (Ghosh et al. 2017, "Robust
    loss functions under label noise for deep neural networks"). So true flip rates lower it. A class that does not exist
    raises it: if every example is of class 1 and 9 in 10 are labelled so, ρ₋ = 0.9 is the share of class 1, and no flip rate.
    The log loss cannot tell these apart, since P̂ alone fits the noisy labels as well.

    Args:
        probabilities: P̂(y = 1 | x) of examples that P̂ was not trained on, `[n]`.
        labels: bool `[n]`, their y.
        rates: 0 and 0 for labels as they are; if nothing is left of 1, the error is 1.
    """
    if rates.left <= 0:
        return 1.0
    clean = np.clip((probabilities - rates.negative) / rates.left, 0.0, 1.0)
    return float(np.abs(clean - labels).mean())


def importance(probabilities: np.ndarray, labels: np.ndarray, rates: FlipRates) -> np.ndarray:
    """Return the weight of each noisy example with which training on them is training on clean ones (Liu & Tao 2015):

        β(x, y) = P(y | x) / P̂(y | x) = (P̂(y | x) − ρ₋y) / ((1 − ρ₊ − ρ₋) P̂(y | x))

    where ρ₋y is the flip rate of the other class; 0 where that is negative, as the estimates are not exact.

    Args:
        probabilities: P̂(1 | x), `[n]`.
        labels: bool `[n]`, the noisy y.
        rates: with something left of 1.

    Returns:
        float64 `[n]`, at least 0 and 1 on average.
    """
    own = np.where(labels, probabilities, 1.0 - probabilities.astype(np.float64))
    other = np.where(labels, rates.negative, rates.positive)
    return np.divide(np.maximum(own - other, 0.0), rates.left * own, out=np.zeros_like(own), where=own > 0)
