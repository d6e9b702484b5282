"""The pooling of a student as modules of sentence-transformers, in a folder of their own until the encoder copies them."""

from __future__ import annotations

from pathlib import Path

from calque.encoders import sentence_modules
from calque.encoders.sentence_vectors import SentencePooling


def write_modules(folder: Path, pooling: SentencePooling, dim: int, *, max_length: int | None = None) -> None:
    """Write `modules.json`, the pooling, and a folder for each dense layer; whoever opens the encoder's folder with
    sentence-transformers, or asks calque for its own pooling, gets the sentence vectors of `pooling`.

    Args:
        folder: of a saved encoder, or an empty one, for `HuggingFaceEncoder.modules`.
        pooling: of subwords, and what comes after it.
        dim: of the encoder.
        max_length: most subwords of a text.
    """
    sentence_modules.write_modules(
        folder, dim=dim, max_length=max_length or pooling.max_length, modes=pooling.modes, after=pooling.after,
        lower=pooling.lower, prompt=pooling.prompt,
    )  # fmt: skip
