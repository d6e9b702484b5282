"""Standardised word vectors, with mean 0 and variance 1 in each dimension."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from calque.encoders.extraction import UncoveredWordsWarning
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.errors import CalqueWarning, SettingError
from calque.text import Sentences

_SENTENCES = 512  # number of sentences from which means and standard deviations are computed
_SHARE = (
    0.5  # a dimension dominates if it accounts for more than this fraction of the mean squared norm
)


class StandardizedWarning(CalqueWarning):
    """The vectors of an encoder are standardised because one dimension dominates them."""


def standardized(
    encoder: Any,
    texts: Sequence[Sentences],
    layers: Sequence[int] | None,
    wanted: bool | None,
) -> Any:
    """Return the encoder with the word vectors of some layers standardised: (x − mean) / standard
    deviation in each dimension.

    In many models a few dimensions are far larger than all others and dominate cosines and
    distances (Timkey & van Schijndel 2021, "All bark and no bite: rogue dimensions in transformer
    language models obscure representational quality", §5). Means and standard deviations are
    computed over all languages together. The result shares the model of `encoder`.

    Args:
        texts: one text per language; about 512 evenly spaced sentences are used in total.
        layers: layers to standardise; default: the encoder's layer.
        wanted: whether to standardise; default: only if one dimension accounts for over half of a
            layer's mean squared norm.
    """
    if wanted is False or not isinstance(encoder, HuggingFaceEncoder):
        if wanted:
            kind = type(encoder).__name__
            raise SettingError(
                f"standardize requires a Transformers encoder, but {encoder.name} is a {kind}"
            )
        return encoder
    numbers = [
        number
        for number in dict.fromkeys(encoder.layer_numbers(layers))
        if number not in encoder.standard
    ]
    each = -(-_SENTENCES // max(1, len(texts)))
    spaced = [
        np.unique(np.linspace(0, len(side) - 1, min(each, len(side))).astype(int)) for side in texts
    ]
    some = [side.take(places) for side, places in zip(texts, spaced, strict=True) if len(side)]
    if not numbers or not some:
        return encoder
    found = dict(encoder.standard)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UncoveredWordsWarning
        )  # the caller warns about the whole text
        encoded = encoder.encode_layers(Sentences.joined(some), numbers)
    for number, vectors in encoded.items():
        rows = np.asarray(
            vectors.data if vectors.covered is None else vectors.data[vectors.covered],
            dtype=np.float64,
        )
        squared = (rows**2).sum(axis=0)
        share = float(squared.max() / max(squared.sum(), np.finfo(np.float64).tiny))
        if len(rows) and (wanted or share > _SHARE):
            deviation = rows.std(axis=0)
            deviation[deviation <= 1e-6 * deviation.max()] = 1.0
            found[number] = torch.from_numpy(
                np.stack([rows.mean(axis=0), deviation]).astype(np.float32)
            )
            if wanted is None:
                fact = (
                    f"{encoder.name}: one of {encoder.dim} dimensions has {share:.0%} of the "
                    f"squared norm in layer {number}"
                )
                remedy = (
                    "all dimensions are standardised; disable this with --option standardize=false"
                )
                warnings.warn(StandardizedWarning(f"{fact}; {remedy}"), stacklevel=2)
    result = copy.copy(encoder)
    result.standard = found
    return result
