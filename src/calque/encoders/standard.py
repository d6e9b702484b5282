"""Standardised word vectors, with mean 0 and variance 1 in each dimension."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence

import numpy as np
import torch

from calque.encoders.base import E
from calque.encoders.extraction import UncoveredWordsWarning
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.errors import CalqueWarning, SettingError
from calque.text import Sentences

_SENTENCES = 512  # number of sentences from which means and standard deviations are computed
#: a dimension dominates if it accounts for more than this fraction of the mean squared norm
DOMINANT = 0.5


class StandardizedWarning(CalqueWarning):
    """The vectors of an encoder are standardised because one dimension dominates them."""


def standardized(
    encoder: E,
    texts: Sequence[Sentences],
    layers: Sequence[int] | None,
    wanted: bool | None,
) -> E:
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
            class_name = type(encoder).__name__
            raise SettingError(
                f"standardize requires a Transformers encoder, but {encoder.name} is a {class_name}"
            )
        return encoder
    numbers = dict.fromkeys(encoder.layer_numbers(layers))
    numbers = [number for number in numbers if number not in encoder.standard]
    sample = _evenly_spaced(texts)
    if not numbers or not len(sample):
        return encoder
    with warnings.catch_warnings():
        # The caller warns about the whole text.
        warnings.simplefilter("ignore", UncoveredWordsWarning)
        encoded = encoder.encode_layers(sample, numbers)
    standard = dict(encoder.standard)
    for number, vectors in encoded.items():
        rows = np.asarray(vectors.data, dtype=np.float64)
        if vectors.covered is not None:
            rows = rows[vectors.covered]
        share = largest_share(rows)
        if not len(rows) or not (wanted or share > DOMINANT):
            continue
        deviation = rows.std(axis=0)
        # A constant dimension must not be divided by zero or by rounding errors.
        deviation[deviation <= 1e-6 * deviation.max()] = 1.0
        statistics = np.stack([rows.mean(axis=0), deviation]).astype(np.float32)
        standard[number] = torch.from_numpy(statistics)
        if wanted is None:
            fact = (
                f"{encoder.name}: one of {encoder.dim} dimensions has {share:.0%} of the squared "
                f"norm in layer {number}"
            )
            remedy = "all dimensions are standardised; disable this with --option standardize=false"
            warnings.warn(StandardizedWarning(f"{fact}; {remedy}"), stacklevel=2)
    result = copy.copy(encoder)
    result.standard = standard
    return result


def largest_share(rows: np.ndarray) -> float:
    """Return the largest fraction of the mean squared norm of vectors `[n, dim]` that one dimension
    accounts for.
    """
    squared = (rows.astype(np.float64) ** 2).sum(axis=0)
    return float(squared.max() / max(squared.sum(), np.finfo(np.float64).tiny))


def _evenly_spaced(texts: Sequence[Sentences]) -> Sentences:
    """Return about `_SENTENCES` sentences in total, evenly spaced in each text."""
    size = -(-_SENTENCES // max(1, len(texts)))  # rounded up
    parts = []
    for text in texts:
        if len(text):
            places = np.linspace(0, len(text) - 1, min(size, len(text))).astype(int)
            parts.append(text.take(np.unique(places)))
    return Sentences.joined(parts)
