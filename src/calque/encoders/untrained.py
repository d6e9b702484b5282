"""A network that has learnt nothing: the baseline of what an architecture alone gives."""

from __future__ import annotations

from typing import Any

import torch

from calque.encoders.base import Encoder
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.errors import SettingError


def untrained(encoder: Encoder, seed: int = 0) -> HuggingFaceEncoder:
    """The same network with new random weights; vocabulary, layer and pooling stay.

    Args:
        encoder: a model of `transformers`; it is not changed.
        seed: of the weights.

    Raises:
        SettingError: it is none.

    Example:
        >>> import calque
        >>> untrained(calque.load_encoder("mini"))  # doctest: +SKIP
        HuggingFaceEncoder(mini untrained, layer 6 of 6, last, 128d)
    """
    if not isinstance(encoder, HuggingFaceEncoder):
        raise SettingError(
            f"{encoder.name} has no network of transformers that could be made anew: take an encoder without maps"
        )
    kind: Any = type(encoder.model)
    pooling: Any = encoder.pooling
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind(encoder.model.config)
    return HuggingFaceEncoder(
        model, encoder.tokenizer, layer=encoder.layer or 0, pooling=pooling, max_length=encoder.max_length,
        name=f"{encoder.name} untrained", precision=encoder.precision or "highest",
    )  # fmt: skip
