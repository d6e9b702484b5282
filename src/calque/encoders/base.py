"""What every method ends as, and what else an encoder must have to be aligned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from calque.errors import SettingError
from calque.text import Sentence
from calque.vectors import Embeddings

_MEASURED = {
    "name": "what reports call it",
    "dim": "dimensions of a vector",
    "fingerprint": "a hash of everything that determines the vectors",
    "encode": "a vector for every word",
}
_MAPPED = _MEASURED | {
    "layer": "the layer that encode returns, counted from 0",
    "layer_number": "a layer counted from 0, −1 being the last",
    "encode_layers": "{layer: Embeddings} of some sentences",
}
_TUNED = _MEASURED | {
    "layer": "the layer that encode returns, counted from 0",
    "n_layers": "number of the last layer",
    "model": "the torch.nn.Module whose weights are trained",
    "subwords": "its split(sentences) gives SplitSentences",
    "forward": "{layer: word vectors} of a WordBatch, with gradients",
}
_USES = {"measured": _MEASURED, "mapped": _MAPPED, "trained": _TUNED}


class Encoder(ABC):
    """Gives each word of a sentence a vector. This is all that a task asks for.

    Maps (`MappedEncoder.fit`) also need `layer`, `layer_number` and `encode_layers`, as `LayeredEncoder` has them. Methods
    that train weights (`Tuner.tune`) need `layer`, `n_layers`, `model`, `subwords` and `forward`, as
    `HuggingFaceEncoder` has them; see `require`.

    Attributes:
        dim: dimensions of a vector.
        name: what reports call it.
    """

    dim: int
    name: str

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Hash over everything that decides the vectors: weights, tokenizer, layer, pooling."""

    @abstractmethod
    def encode(
        self, sentences: Iterable[Sentence], *, progress: bool = False, out: str | PathLike[str] | None = None
    ) -> Embeddings:
        """One vector per word.

        Args:
            sentences: in any order; the result keeps it.
            progress: show a bar on stderr.
            out: write to this file, mapped into memory, instead of holding all vectors in memory.
        """

    @abstractmethod
    def save(self, folder: str | PathLike[str]) -> None:
        """Write to a folder that `calque.load_encoder` reads."""


class LayeredEncoder(Encoder):
    """An encoder that has several layers, and gives any of them from one pass."""

    @abstractmethod
    def layer_number(self, layer: int) -> int:
        """`layer` counted from 0.

        Raises:
            SettingError: the encoder has no such layer.
        """

    @abstractmethod
    def _encode(
        self, sentences, layers: list[int], progress: bool, out: Mapping[int, Path] | None, dtype: str
    ) -> dict[int, Embeddings]:
        """Embeddings by the number of the layer; into files where `out` names them."""

    def encode_layers(
        self,
        sentences: Iterable[Sentence | Sequence[str]],
        layers: Sequence[int],
        *,
        progress: bool = False,
        out: str | PathLike[str] | None = None,
        dtype: str = "float32",
    ) -> dict[int, Embeddings]:
        """Several layers from one pass, by the numbers that were asked for.

        Args:
            out: a folder, in which layer 6 becomes `layer-06.safetensors`; else as in `encode`.
        """
        numbers = {layer: self.layer_number(layer) for layer in layers}
        distinct = sorted(set(numbers.values()))
        paths = None if out is None else {n: Path(out) / f"layer-{n:02d}.safetensors" for n in distinct}
        found = self._encode(sentences, distinct, progress, paths, dtype)
        return {layer: found[number] for layer, number in numbers.items()}


def require(encoder: Any, use: Literal["measured", "mapped", "trained"]) -> None:
    """Check that an encoder has what it needs to be measured, mapped, or trained.

    Raises:
        SettingError: it has not; the message names every missing member and says what it is.
    """
    # Asked of the class first: a fingerprint may take long to compute.
    missing = [name for name in _USES[use] if not hasattr(type(encoder), name) and not hasattr(encoder, name)]
    if missing:
        name = getattr(encoder, "name", "") or type(encoder).__name__
        members = ", ".join(f"{each} ({_USES[use][each]})" for each in missing)
        raise SettingError(
            f"{name} cannot be {use}: {type(encoder).__name__} has no {members}; "
            'see "Your own model, method, task" in the documentation (docs/guides/own.md)'
        )
