"""Labels of two classes of which some are wrong: how many, and what each example must weigh to make up for that.

Importance reweighting (Liu & Tao 2015, "Classification with noisy labels by importance reweighting"): a classifier that is
trained with these weights on noisy labels minimises, on average, the loss that it would have on clean ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FlipRates:
    """How often labels are wrong, by class.

    Attributes:
        positive: ρ₊ = P(labelled 0 | truly 1).
        negative: ρ₋ = P(labelled 1 | truly 0).
    """

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
    of class 1.

    They take the minimum of P̂. A network's P̂ goes on falling beyond the edge of a class, and of many examples there is
    always one about which it is wrongly sure, so that this is far too low. Here it is the fraction with y = 1 of the examples
    with the lowest P̂. If P̂ does not know their labels, its mean is never below ρ₋, however wrong P̂ is.

    Args:
        probabilities: P̂(y = 1 | x) of examples, `[n]`.
        labels: bool `[n]`, their y.
        quantile: fraction of the examples that are those with the lowest P̂, at each end.
    """
    ends, count = np.argsort(probabilities, kind="stable"), max(1, round(quantile * len(labels)))
    return FlipRates(positive=float(1.0 - labels[ends[-count:]].mean()), negative=float(labels[ends[:count]].mean()))


def importance(probabilities: np.ndarray, labels: np.ndarray, rates: FlipRates) -> np.ndarray:
    """What each noisy example weighs, so that training on them is training on clean ones (Liu & Tao 2015):

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
