"""The base class of all encoders."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import numpy as np

from calque.encoders.extraction import WINDOW, UncoveredWordsWarning, word_bar, word_counts
from calque.encoders.folder import OWN, encoder_kind, read_about, saving, write_about
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.storage import JsonObject
from calque.text import ParallelCorpus, Sentence
from calque.vectors import Embeddings, filling

_MEASURED = ("name", "dim", "fingerprint", "encode")
_USES = {
    "measured": _MEASURED,
    "mapped": (*_MEASURED, "layer", "layer_numbers", "encode_layers"),
    "trained": (*_MEASURED, "layer", "n_layers", "model", "split", "forward"),
}


E = TypeVar("E", bound="Encoder")


class Encoder(ABC):
    """Base class of encoders, which compute a vector for each word of a sentence.

    A subclass must define `name`, `dim`, `fingerprint` and `encode`. By default an encoder has only
    layer 0; an encoder with several layers sets `n_layers` and implements `encode_layers`.

    Attributes:
        dim: number of dimensions of each vector.
        name: name shown in reports.
        n_layers: number of the last layer, counting from 0.
        layer: layer whose vectors `encode` returns; None if `encode` combines several layers.
        base: encoder that this encoder is built on, or None.
        precision: precision of the matrix products in `encode`; None if `encode` computes no matrix
            products.
        rows: unit that each vector represents: "words", or "key points" (see `KeyPointEncoder`).
        made: record of the alignment, shown in the model card; None if the encoder was not aligned.
    """

    dim: int
    name: str
    n_layers: int = 0
    layer: int | None = 0
    base: Encoder | None = None
    precision: str | None = None
    rows: Literal["words", "key points"] = "words"
    made: JsonObject | None = None

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of everything that determines the vectors: weights, tokenizer, layer, pooling."""

    @abstractmethod
    def encode(
        self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False
    ) -> Embeddings:
        """Return one vector per word, in the order of the sentences; with `progress`, show a
        progress bar on standard error.
        """

    def encode_to(
        self, path: str | PathLike[str], sentences: Sequence[Sentence], *, progress: bool = False
    ) -> Embeddings:
        """Write one vector per word to a safetensors file atomically, and return the memory-mapped
        vectors.

        The vectors of at most 4,096 sentences are held in memory at a time.

        Raises:
            OutputError: the file cannot be written, for example because the disk is full.
        """
        if self.rows != "words":  # the number of vectors is known only after encoding
            self.encode(sentences, progress=progress).save(path)
            return Embeddings.open(path)
        offsets = offsets_of(word_counts(sentences))
        n = int(offsets[-1])
        arrays_of = {
            "data": ((n, self.dim), np.float32),
            "offsets": (offsets.shape, np.int64),
            "covered": ((n,), np.bool_),
        }
        with (
            filling(path, arrays_of) as arrays,
            word_bar(n, show=progress) as counter,
            warnings.catch_warnings(),
        ):
            # One warning at the end replaces the warnings about each window.
            warnings.simplefilter("ignore", UncoveredWordsWarning)
            arrays["offsets"][...] = offsets
            for start in range(0, len(sentences), WINDOW):
                part = self.encode(sentences[start : start + WINDOW])
                rows = slice(int(offsets[start]), int(offsets[start]) + part.n_words)
                arrays["data"][rows] = part.data
                arrays["covered"][rows] = True if part.covered is None else part.covered
                counter.update(part.n_words)
        vectors = Embeddings.open(path)
        if vectors.covered is not None:
            missing = int((~vectors.covered).sum())
            fact = (
                f"{missing:,} of {n:,} words have no vector: they exceed the encoder's limit, or "
                "the tokenizer drops them"
            )
            warnings.warn(UncoveredWordsWarning(f"{fact}; their vectors are zero"), stacklevel=2)
        return vectors

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages for which the encoder has word vector tables, separate encoders or maps; empty
        if it accepts any language.
        """
        return ()

    def stored_words(self, lang: str) -> Sequence[str] | None:
        """Return the words of a language that have a stored vector, usually the most frequent
        first, or None if the encoder has no such list because it computes vectors from text."""
        return None

    @property
    def layers(self) -> Sequence[int]:
        """Numbers of all layers that `encode_layers` can return."""
        return range(self.n_layers + 1)

    def layer_number(self, layer: int) -> int:
        """Return the number of a layer, counting from 0; a negative `layer` counts from the end of
        `layers`.
        """
        layers = self.layers
        number = layers[layer] if -len(layers) <= layer < 0 else layer
        if number in layers:
            return number
        if isinstance(layers, range) and len(layers) > 1:
            known = f"0 to {layers[-1]} (-1 is the last)"
        else:
            known = ", ".join(str(number) for number in layers)
        raise SettingError(f"there is no layer {layer}: {self.name} has layers {known}")

    def layer_numbers(self, layers: Sequence[int] | None) -> tuple[int, ...]:
        """Return the numbers of the given layers; default: the encoder's `layer`, or the last layer
        if `layer` is None.
        """
        if layers is None:
            layers = [-1 if self.layer is None else self.layer]
        if not layers:
            raise SettingError(
                "layers must not be empty; give at least one, or omit layers to use the encoder's "
                "layer"
            )
        return tuple(self.layer_number(layer) for layer in layers)

    def encode_layers(
        self,
        sentences: Iterable[Sentence | Sequence[str]],
        layers: Sequence[int],
        *,
        progress: bool = False,
    ) -> dict[int, Embeddings]:
        """Return the vectors of several layers from one forward pass, keyed by the requested layer
        numbers.
        """
        numbers = {layer: self.layer_number(layer) for layer in layers}
        vectors = self._encode(sentences, sorted(set(numbers.values())), progress)
        return {layer: vectors[number] for layer, number in numbers.items()}

    def _encode(
        self, sentences: Iterable[Sentence | Sequence[str]], layers: list[int], progress: bool
    ) -> dict[int, Embeddings]:
        """Return the vectors of the given layers, keyed by layer number."""
        if layers != [self.layer]:
            raise SettingError(
                f"{self.name} has several layers, so {type(self).__name__} must implement "
                "encode_layers"
            )
        return {layers[0]: self.encode(sentences, progress=progress)}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a folder that `load_encoder` can load. This default works only for classes without
        constructor arguments.
        """
        class_name = encoder_kind(self)
        if class_name == OWN:
            fact = (
                f"{type(self).__name__} does not implement save, and its module cannot be imported"
            )
            raise SettingError(f"{self.name} cannot be saved: {fact}")
        with saving(folder, self) as path:
            write_about(path, class_name, {"fingerprint": self.fingerprint})

    def write_card(self, folder: Path) -> None:
        """Write the model card and the alignment record to a folder if the encoder was aligned."""
        if self.made is not None:
            from calque.encoders.card import write_card

            write_card(folder, self, self.made)

    def vector_settings(self, about: JsonObject) -> JsonObject | None:
        """Return the settings with which transformers computes the same word vectors, for the model
        card; None if it cannot compute them.

        Args:
            about: content of the saved encoder's `calque.json`.
        """
        return None

    def save_whole(self, folder: str | PathLike[str]) -> None:
        """Save the encoder with all layers, so that the layer numbers and the fingerprint stay the
        same.
        """
        self.save(folder)

    @classmethod
    def open(
        cls, folder: str | PathLike[str], *, about: JsonObject | None = None, **options: Any
    ) -> Self:
        """Load an encoder that `save` wrote. This default works only for classes without
        constructor arguments.

        Args:
            folder: folder to load the encoder from.
            about: content of the folder's `calque.json`; by default, it is read from the file.
            options: arguments that the caller passed to `load_encoder`.
        """
        if cls.save is not Encoder.save:
            raise InputError(
                f"{cls.__name__} cannot be loaded, because it implements save but not open",
                path=folder,
            )
        encoder = build(cls, options)
        if about is None:
            about = read_about(folder)
        if about.get("fingerprint") not in (None, encoder.fingerprint):
            fact = f"{cls.__name__}() has a different fingerprint from the saved encoder"
            raise InputError(f"{fact}; implement save and open", path=folder)
        return encoder


def build(encoder_class: type[E], options: Mapping[str, object] | None = None) -> E:
    """Build an encoder by calling its class without arguments; raise SettingError if any options
    are given.
    """
    for option in options or {}:
        raise SettingError(f"{option} does not apply to {encoder_class.__name__}")
    try:
        return encoder_class()
    except TypeError as error:
        place = f"{encoder_class.__module__}:{encoder_class.__qualname__}"
        fact = f"{place} cannot be built without arguments ({error})"
        raise SettingError(f"{fact}; use a subclass that sets the arguments") from error


def require(
    encoder: Encoder,
    use: Literal["measured", "mapped", "trained"],
    rows: Sequence[str] = ("words",),
) -> None:
    """Check that an encoder has all members required for `use`, and that its attribute `rows` is
    one of the given units.
    """
    # The class is checked first, because computing the property `fingerprint` can take a long time.
    missing = [
        name
        for name in _USES[use]
        if not hasattr(type(encoder), name) and not hasattr(encoder, name)
    ]
    if missing:
        name = getattr(encoder, "name", "") or type(encoder).__name__
        fact = f"{name} cannot be {use}: {type(encoder).__name__} has no {', '.join(missing)}"
        raise SettingError(
            f'{fact}; see "Your own model, method, task" in the documentation (docs/guides/own.md)'
        )
    unit = getattr(encoder, "rows", "words")
    if unit not in rows:
        fact = (
            f"{encoder.name} has vectors for {unit}, but vectors for {' or '.join(rows)} are "
            "required here"
        )
        raise SettingError(
            f"{fact}; choose a text-level task, such as nli, which also supports key points"
        )
    base = getattr(encoder, "base", None)
    if use == "mapped" and base is not None:
        raise SettingError(
            f"{encoder.name} already has maps; fit new maps to its base encoder, {base.name}"
        )


def made_of(
    base: Encoder,
    method: str,
    towards: str,
    corpora: Sequence[ParallelCorpus],
    pairs: Sequence[WordPairs],
    about: Mapping[str, object],
) -> JsonObject:
    """Return the record of an alignment that was computed from Python; the model card shows this
    record.

    Args:
        method, towards: name of the method, and language that the other languages are aligned with.
        corpora, pairs: parallel texts and their word links.
        about: result of `Method.record()`, which contains the settings.
    """
    texts = [
        {
            "path": "text given in Python",
            "langs": list(text.langs),
            "sentence_pairs": len(text),
            "word_pairs": len(linked),
        }
        for text, linked in zip(corpora, pairs, strict=True)
    ]
    facts = {
        "encoder": base.name,
        "encoder_fingerprint": base.fingerprint,
        "encoder_precision": base.precision,
    }
    return {**about, "method": method, "towards": towards, "texts": texts, **facts}
