"""What every method ends as."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from os import PathLike

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
