"""Ways of reading word vectors from an encoder: other layers, and another pooling."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from calque.encoders.base import Encoder
from calque.encoders.huggingface import POOLINGS, HuggingFaceEncoder
from calque.encoders.mapped import MappedEncoder
from calque.errors import SettingError
from calque.storage import json_text
from calque.text import Sentence
from calque.vectors import Embeddings


class StackedLayers(Encoder):
    """Encoder that returns the vectors of several layers of another encoder side by side, `[W,
    n_layers * dim]`, from one forward pass.

    The maps of a `MappedEncoder` are applied to each layer separately.

    Args:
        encoder: encoder to read.
        layers: numbers of the layers, see `layers_of`.
    """

    def __init__(self, encoder: Encoder, layers: Sequence[int]):
        self.read, self.numbers = encoder, encoder.layer_numbers(layers)
        self.name, self.rows, self.precision = encoder.name, encoder.rows, encoder.precision
        self.dim = len(self.numbers) * layer_dim(encoder)

    @property
    def fingerprint(self) -> str:
        about = json_text([self.read.fingerprint, "layers", list(self.numbers)])
        return hashlib.blake2b(about.encode(), digest_size=16).hexdigest()

    def encode(
        self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False
    ) -> Embeddings:
        by_layer = self.read.encode_layers(sentences, self.numbers, progress=progress)
        if len(self.numbers) == 1:
            return by_layer[self.numbers[0]]
        first = by_layer[self.numbers[0]]
        offsets, covered = first.offsets, first.covered
        data = np.empty((first.n_words, len(self.numbers), first.dim), dtype=np.float32)
        for index, number in enumerate(self.numbers):
            # Removing each layer as soon as it is copied keeps the peak of memory low.
            data[:, index] = by_layer.pop(number).data
        return Embeddings(data.reshape(len(data), -1), offsets, covered)


def layer_dim(encoder: Encoder) -> int:
    """Return the number of dimensions of a vector that `encode_layers` returns."""
    # `dim` of an encoder that concatenates the mapped layers is that of all of them.
    return encoder.base.dim if isinstance(encoder, MappedEncoder) else encoder.dim


def layers_of(encoder: Encoder, layers: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the numbers of the layers to choose from or to mix, without duplicates.

    Args:
        layers: indices of the layers; negative indices count from the last layer. Default: all
            layers that `encode_layers` can return.

    Raises:
        SettingError: the encoder has only one layer.
    """
    if len(encoder.layers) > 1:
        return tuple(sorted(set(encoder.layer_numbers(list(layers or encoder.layers)))))
    if isinstance(encoder, MappedEncoder) and len(encoder.base.layers) > 1:
        last = encoder.base.layers[-1]
        raise SettingError(
            f"several layers cannot be read from {encoder.name}, because only layer "
            f"{encoder.n_layers} has maps; fit maps for each layer (calque align --layers "
            f"0-{last}), or leave out layers"
        )
    raise SettingError(
        f"several layers cannot be read from {encoder.name}, because it has only one; leave out "
        "layers"
    )


def poolings_of(encoder: Encoder) -> tuple[str, ...]:
    """Return the methods by which subword vectors of an encoder can be pooled, its own method
    first; empty if the encoder has no such setting.
    """
    if not isinstance(encoder, HuggingFaceEncoder):
        return ()
    # The means and standard deviations were computed with the encoder's own pooling.
    if encoder.standard:
        return (encoder.pooling,)
    return (encoder.pooling, *(name for name in POOLINGS if name != encoder.pooling))


def with_pooling(encoder: Encoder, pooling: str) -> Encoder:
    """Return an encoder with the same weights and another pooling; `encoder` is not changed.

    Raises:
        SettingError: the pooling of the encoder cannot be changed.
    """
    known = poolings_of(encoder)
    if pooling not in known:
        allowed = f"only {', '.join(known)} is possible" if known else "it has no pooling"
        raise SettingError(
            f"the pooling of {encoder.name} cannot be {pooling}, because {allowed}; leave out "
            "poolings"
        )
    changed = copy.copy(encoder)
    changed.pooling = pooling  # type: ignore[attr-defined]
    return changed
