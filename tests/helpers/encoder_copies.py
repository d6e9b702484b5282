"""Copies of tiny encoders with different weights or dropout."""

from __future__ import annotations

import copy
from typing import Any

import torch


def with_dropout(encoder: Any, p: float = 0.0) -> Any:
    """Return a copy with the given dropout probability; with p=0, several processes compute the
    same result.
    """
    made = copy.copy(encoder)
    made.model = copy.deepcopy(encoder.model)
    for module in made.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = p
    return made


def moved(encoder: Any) -> Any:
    """Return a copy whose weights differ slightly from those of the original encoder."""
    tuned = copy.copy(encoder)
    tuned.model = copy.deepcopy(encoder.model)
    with torch.no_grad():
        for p in tuned.model.parameters():
            p.add_(0.01 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    return tuned
