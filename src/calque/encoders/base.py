"""What every method ends as."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from calque.encoders.extraction import WINDOW, UncoveredWordsWarning, encode_bar, word_counts
from calque.encoders.folder import OWN, encoder_kind, read_about, saving, write_about
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of
from calque.text import Sentence
from calque.vectors import Embeddings, filling

_MEASURED = {
    "name": "what reports call it",
    "dim": "dimensions of a vector",
    "fingerprint": "a hash of everything that determines the vectors",
    "encode": "a vector for every word",
}
_MAPPED = _MEASURED | {
    "layer": "the layer that encode returns, counted from 0",
    "layer_numbers": "layers counted from 0, −1 being the last",
    "encode_layers": "{layer: Embeddings} of some sentences",
}
_TRAINED = _MEASURED | {
    "layer": "the layer that encode returns, counted from 0",
    "n_layers": "number of the last layer",
    "model": "the torch.nn.Module whose weights are trained",
    "split": "the SplitSentences of some sentences",
    "forward": "{layer: word vectors} of a WordBatch, with gradients",
}
_USES = {"measured": _MEASURED, "mapped": _MAPPED, "trained": _TRAINED}


class Encoder(ABC):
    """Gives each word of a sentence a vector.

    Tasks ask for `name`, `dim`, `fingerprint` and `encode`, which is all that an encoder has to have. As it stands here
    it has one layer, number 0; one with several says so in `n_layers`, and gives them in `encode_layers`.

    Attributes:
        dim: dimensions of a vector.
        name: what reports call it.
        n_layers: number of the last layer, where layers are counted from 0.
        layer: the layer that `encode` gives; None if it gives a sum or a mixture of several.
        base: the encoder that this one is built on, if it is built on one.
        precision: of float32 matrix products in `encode`; None if it computes none.
        rows: what a row of the vectors is.
        made: how it was aligned, for the card and the record that `save` writes; None for an encoder that was not.
    """

    dim: int
    name: str
    n_layers: int = 0
    layer: int | None = 0
    base: Encoder | None = None
    precision: str | None = None
    rows: Literal["words", "key points"] = "words"
    made: dict[str, Any] | None = None
    _first_layer: ClassVar[str] = ""  # what layer 0 is, for messages

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Hash over everything that determines the vectors: weights, tokenizer, layer, pooling."""

    @abstractmethod
    def encode(self, sentences: Iterable[Sentence], *, progress: bool = False) -> Embeddings:
        """Return one vector per word.

        Args:
            sentences: in any order; the result keeps it.
            progress: show a bar on stderr.
        """

    def encode_to(
        self, path: str | PathLike[str], sentences: Sequence[Sentence], *, progress: bool = False
    ) -> Embeddings:
        """Write one vector per word to a safetensors file, and return its vectors, mapped into memory.

        Memory holds the vectors of 4,096 sentences at a time. The file gets its name when it is complete.

        Raises:
            OutputError: there is no space for the file, or it cannot be written.
        """
        if self.rows != "words":  # how many a sentence has is known when it is encoded
            self.encode(sentences, progress=progress).save(path)
            return Embeddings.open(path)
        offsets = offsets_of(word_counts(sentences))
        n = int(offsets[-1])
        shapes = {
            "data": ((n, self.dim), np.float32),
            "offsets": (offsets.shape, np.int64),
            "covered": ((n,), np.bool_),
        }
        with filling(path, shapes) as arrays, encode_bar(n, progress) as shown, warnings.catch_warnings():
            warnings.simplefilter("ignore", UncoveredWordsWarning)  # one line in the end, not one for each window
            arrays["offsets"][...] = offsets
            for start in range(0, len(sentences), WINDOW):
                part = self.encode(sentences[start : start + WINDOW])
                rows = slice(int(offsets[start]), int(offsets[start]) + part.n_words)
                arrays["data"][rows] = part.data
                arrays["covered"][rows] = True if part.covered is None else part.covered
                shown.update(part.n_words)
        vectors = Embeddings.open(path)
        if vectors.covered is not None:
            missing = int((~vectors.covered).sum())
            fact = f"{missing:,} of {n:,} words have no vector: they exceed the encoder's limit, or the tokenizer drops them"
            warnings.warn(UncoveredWordsWarning(f"{fact}; their rows are zero"), stacklevel=2)
        return vectors

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that it has tables, encoders or maps for; none if it takes any."""
        return ()

    # -- layers ----------------------------------------------------------------------------------------------------
    @property
    def layers(self) -> Sequence[int]:
        """Numbers of all layers that `encode_layers` can give."""
        return range(self.n_layers + 1)

    def layer_number(self, layer: int) -> int:
        """Return `layer` counted from 0; −1 is the last of `layers`.

        Raises:
            SettingError: the encoder has no such layer.
        """
        layers = self.layers
        number = layers[layer] if -len(layers) <= layer < 0 else layer
        if number in layers:
            return number
        if len(layers) == 1:
            has = f"one layer, {layers[0]}"
        elif isinstance(layers, range):
            has = f"layers 0{self._first_layer and f' ({self._first_layer})'} to {layers[-1]}, -1 is the last"
        else:
            has = f"layers {', '.join(map(str, layers))}"
        raise SettingError(f"layer {layer}: {self.name} has {has}")

    def layer_numbers(self, layers: Sequence[int] | None) -> tuple[int, ...]:
        """Return `layers` counted from 0; None for the one that `encode` gives, or the last where that is none of them.

        Raises:
            SettingError: the encoder has no such layer, or none is named.
        """
        if layers is None:
            layers = [-1 if self.layer is None else self.layer]
        if not layers:
            raise SettingError("layers is empty: name one or more, or leave it out for the encoder's own")
        return tuple(self.layer_number(layer) for layer in layers)

    def encode_layers(
        self,
        sentences: Iterable[Sentence | Sequence[str]],
        layers: Sequence[int],
        *,
        progress: bool = False,
    ) -> dict[int, Embeddings]:
        """Return several layers from one pass, by the numbers that were asked for."""
        numbers = {layer: self.layer_number(layer) for layer in layers}
        vectors = self._encode(sentences, sorted(set(numbers.values())), progress)
        return {layer: vectors[number] for layer, number in numbers.items()}

    def _encode(self, sentences: Any, layers: list[int], progress: bool) -> dict[int, Embeddings]:
        """Return embeddings by the number of the layer."""
        if layers != [self.layer]:
            raise SettingError(f"{self.name} has several layers, but {type(self).__name__} has no encode_layers")
        return {layers[0]: self.encode(sentences, progress=progress)}

    # -- disk ------------------------------------------------------------------------------------------------------
    def save(self, folder: str | PathLike[str]) -> None:
        """Write to a folder that `calque.load_encoder` reads; here, of an encoder that needs no arguments, its class.

        Raises:
            SettingError: nobody could import it from there.
        """
        kind = encoder_kind(self)
        if kind == OWN:
            fact = f"{type(self).__name__} has no save, and stands in no module that could be imported"
            raise SettingError(f"{self.name} cannot be saved: {fact}")
        with saving(folder, self) as path:
            write_about(path, kind, {"fingerprint": self.fingerprint})

    def write_card(self, folder: Path) -> None:
        """Write model card and record into the folder that `save` fills, if the encoder was aligned."""
        if self.made is not None:
            from calque.encoders.card import write_card

            write_card(folder, self, self.made)

    def save_whole(self, folder: str | PathLike[str]) -> None:
        """Save as what others build on: layers keep their numbers, and the fingerprint stays."""
        self.save(folder)

    @classmethod
    def open(cls, folder: str | PathLike[str], *, about: Mapping[str, Any] | None = None, **options: Any) -> Self:
        """Read what `save` wrote; here, an encoder that needs no arguments.

        Args:
            folder: where it is.
            about: what its `calque.json` says; None to read that.
            options: those arguments of `load_encoder` that were given.

        Raises:
            InputError: something is missing or damaged.
            SettingError: an option that this encoder does not have.
        """
        if cls.save is not Encoder.save:
            raise InputError(f"{cls.__name__} cannot be opened: it has save, but no open", path=folder)
        encoder = build(cls, options)
        if (read_about(folder) if about is None else about).get("fingerprint") not in (None, encoder.fingerprint):
            fact = f"{cls.__name__}() is not the encoder that was saved here"
            raise InputError(f"{fact}: give it save and open", path=folder)
        return encoder


def build(kind: type[Encoder], options: Mapping[str, Any] | None = None) -> Any:
    """Return an encoder of a class that needs no arguments.

    Raises:
        SettingError: options were given, or the class cannot be built without.
    """
    for option in options or {}:
        raise SettingError(f"{option} does not apply to {kind.__name__}")
    try:
        return kind()
    except TypeError as error:
        raise SettingError(
            f"{kind.__module__}:{kind.__qualname__} cannot be built without arguments ({error}): give a subclass that "
            "knows them"
        ) from error


def require(encoder: Any, use: Literal["measured", "mapped", "trained"], rows: Sequence[str] = ("words",)) -> None:
    """Check that an encoder has what it needs to be measured, mapped, or trained.

    Args:
        rows: what the rows of its vectors may be, see `Encoder.rows`.

    Raises:
        SettingError: it has not; the message names every missing member and says what it is.
    """
    # Asked of the class first: a fingerprint may take long to compute.
    missing = [name for name in _USES[use] if not hasattr(type(encoder), name) and not hasattr(encoder, name)]
    if missing:
        name = getattr(encoder, "name", "") or type(encoder).__name__
        members = ", ".join(f"{member} ({_USES[use][member]})" for member in missing)
        raise SettingError(
            f"{name} cannot be {use}: {type(encoder).__name__} has no {members}; "
            'see "Your own model, method, task" in the documentation (docs/guides/own.md)'
        )
    if (given := getattr(encoder, "rows", "words")) not in rows:
        raise SettingError(
            f"{encoder.name} cannot be {use} here: its vectors are of {given}, expected {' or '.join(rows)}; tasks on "
            "whole texts, such as nli, take both"
        )
    if use == "mapped" and getattr(encoder, "base", None) is not None:
        raise SettingError(f"{encoder.name} has maps already: map {encoder.base.name}, which they are for")


def made_of(
    base: Encoder, method: str, towards: str, corpora: Sequence[Any], pairs: Sequence[Any], about: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the record of an alignment that was made in Python, for the card that `save` writes.

    Args:
        base: the encoder that was aligned.
        method, towards: name of the method, and the language that the others move towards.
        corpora, pairs: parallel texts and their word links.
        about: `Method.record()`: settings, and what else there is.
    """
    texts = [
        {"path": "text given in Python", "langs": list(corpus.langs), "sentence_pairs": len(corpus), "word_pairs": len(linked)}
        for corpus, linked in zip(corpora, pairs, strict=True)
    ]  # fmt: skip
    known = {"encoder": base.name, "encoder_fingerprint": base.fingerprint, "encoder_precision": base.precision}
    return {**about, "method": method, "towards": towards, "texts": texts, **known}
