"""What every method ends as."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from calque.text import Sentence
from calque.vectors import Embeddings


class Encoder(ABC):
    """Gives each word of a sentence a vector.

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
