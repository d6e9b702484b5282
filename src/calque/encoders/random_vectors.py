"""Baselines: random vectors for word types, and networks with random weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Self, cast

import numpy as np
import torch

from calque.encoders.base import Encoder
from calque.encoders.folder import encoder_kind, read_about, saving, write_about
from calque.encoders.huggingface import HuggingFaceEncoder, Pooling
from calque.errors import InputError, SettingError, check_number
from calque.storage import JsonObject, json_text
from calque.text import Sentence, number_words
from calque.vectors import Embeddings


class RandomVectors(Encoder):
    """Bag-of-words baseline: a random vector for each word type, which is the same in every
    context.

    The components are independent standard normal numbers that depend only on the word type and the
    seed.

    Args:
        dim: number of dimensions.
        seed: random seed for the vectors.

    Example:
        >>> vectors = RandomVectors(4).encode([["a", "b"], ["b"]])
        >>> bool((vectors.data[1] == vectors.data[2]).all())
        True
    """

    def __init__(self, dim: int = 256, seed: int = 0):
        check_number("dim", dim, least=1, most=1_000_000, whole=True)
        check_number("seed", seed, least=0, whole=True)
        self.dim, self.seed, self.name = dim, seed, "random vectors"

    @property
    def fingerprint(self) -> str:
        about = json_text(["random vectors", self.dim, self.seed])
        return hashlib.blake2b(about.encode(), digest_size=16).hexdigest()

    def encode(
        self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False
    ) -> Embeddings:
        word_types, numbers, offsets = number_words(sentences)
        vectors = np.zeros((len(word_types), self.dim), dtype=np.float32)
        for number, word in enumerate(word_types):
            key = hashlib.blake2b(
                f"{self.seed} {word}".encode("utf-8", "surrogatepass"), digest_size=16
            ).digest()
            generator = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
            vectors[number] = generator.standard_normal(self.dim, dtype=np.float32)
        return Embeddings(vectors[numbers], offsets)

    def save(self, folder: str | PathLike[str]) -> None:
        """Write a folder that `load_encoder` can load."""
        with saving(folder, self) as path:
            write_about(path, encoder_kind(self), {"dim": self.dim, "seed": self.seed})

    @classmethod
    def open(
        cls, folder: str | PathLike[str], *, about: JsonObject | None = None, **options: object
    ) -> Self:
        for option in options.keys() - {
            "device",
            "dtype",
        }:  # there are no weights to convert or move
            raise SettingError(f"{option} does not apply to random vectors")
        about = read_about(folder) if about is None else about
        try:
            return cls(about["dim"], about["seed"])
        except (KeyError, SettingError) as error:
            raise InputError(
                f"invalid settings for random vectors ({error})", path=folder
            ) from error


def untrained(encoder: Encoder, seed: int = 0) -> HuggingFaceEncoder:
    """Return a copy of an encoder with new random weights, as a baseline with the same
    architecture.

    Vocabulary, layer and pooling stay the same; `encoder` is not changed.

    Raises:
        SettingError: the encoder is not a `transformers` model.
    """
    if not isinstance(encoder, HuggingFaceEncoder):
        raise SettingError(
            f"{encoder.name} is not a Transformers model; use an encoder without maps"
        )
    model_class = type(encoder.model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(encoder.model.config)
    return HuggingFaceEncoder(
        model,
        encoder.tokenizer,
        layer=encoder.layer or 0,
        pooling=cast("Pooling", encoder.pooling),
        max_length=encoder.max_length,
        name=f"{encoder.name} untrained",
        precision=encoder.precision or "highest",
    )
