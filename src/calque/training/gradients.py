"""Whether two losses pull the same weights the same way: the cosine between their gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from calque.distributed import Processes
from calque.training.objective import Objective

Gradients = Sequence[Tensor | None]


@dataclass(frozen=True)
class GradientCosine:
    """Cosines between the gradients of two losses, one for each pair of batches.

    Attributes:
        mean, sd: of the cosines; NaN where there are none, or one.
        whole: the cosine between the two gradients summed over all batches, in which the noise of single batches, which
            draws every cosine towards 0, is smaller; NaN where the sums are not known.
        n: pairs of batches.
    """

    mean: float
    sd: float
    whole: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float], whole: float = math.nan) -> GradientCosine:
        """From the cosines of pairs of batches; those that are not defined are left out."""
        known = [value for value in values if not math.isnan(value)]
        mean = sum(known) / len(known) if known else math.nan
        spread = sum((value - mean) ** 2 for value in known)
        sd = math.sqrt(spread / (len(known) - 1)) if len(known) > 1 else math.nan
        return cls(mean, sd, whole, len(known))

    def about(self) -> dict[str, Any]:
        """As plain values for the record; what is not known is None."""
        return {name: None if isinstance(value, float) and math.isnan(value) else
                round(value, 5) for name, value in vars(self).items()}  # fmt: skip


def cosine(one: Gradients, other: Gradients) -> float:
    """Σ g·h / (‖g‖‖h‖) over the tensors of two gradients, of which None is zero; NaN where either is all zero."""
    both = sum(float((g * h).sum()) for g, h in zip(one, other, strict=True) if g is not None and h is not None)
    lengths = [math.sqrt(sum(float(g.square().sum()) for g in each if g is not None)) for each in (one, other)]
    return both / (lengths[0] * lengths[1]) if min(lengths) > 0 else math.nan


def take_gradients(weights: Iterable[nn.Parameter]) -> list[Tensor | None]:
    """The gradients of some weights, which have none afterwards."""
    taken = []
    for weight in weights:
        taken.append(weight.grad)
        weight.grad = None
    return taken


def gradient_cosine(
    first: Objective[Any], second: Objective[Any], updates: Iterable[tuple[Any, Any]], weights: Sequence[nn.Parameter],
    processes: Processes, *, seed: int = 0,
) -> GradientCosine:  # fmt: skip
    """The cosine between the gradients of two objectives over the same weights, which stay as they are.

    Args:
        first, second: objectives whose modules share the weights.
        updates: pairs of an update of the one and one of the other.
        weights: those in which the gradients are compared.
        processes: of this run.
        seed: of dropout, if the modules are in training mode.
    """
    values: list[float] = []
    sums: list[list[Tensor | None]] = [[None] * len(weights), [None] * len(weights)]
    for number, pair in enumerate(updates):
        found = []
        for objective, update, total in zip((first, second), pair, sums, strict=True):
            torch.manual_seed(seed + number)
            objective.backward(update)
            processes.sum_gradients(weights)
            found.append(take_gradients(weights))
            for k, gradient in enumerate(found[-1]):
                if gradient is not None:
                    before = total[k]
                    total[k] = gradient if before is None else before + gradient
            objective.module.zero_grad(set_to_none=True)
        values.append(cosine(*found))
    return GradientCosine.of(values, cosine(*sums))
