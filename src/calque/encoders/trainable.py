"""The base class of encoders with trainable weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from calque.encoders.base import Encoder
from calque.encoders.batches import WordBatch
from calque.encoders.extraction import extract
from calque.encoders.numerics import arithmetic, check_finite
from calque.encoders.split import SplitSentences
from calque.text import Sentence
from calque.vectors import Embeddings


class TrainableEncoder(Encoder):
    """Base class of encoders with trainable weights; `encode` calls `split` and `forward`.

    Attributes:
        layer: layer whose vectors `encode` returns.
        model: module to train, a `torch.nn.Module`.
        budget: maximum number of subwords in each batch that `encode` builds, including padding.
        max_length: maximum number of subwords in a sentence, reported in warnings; None if there is
            no limit.
        padding: maximum ratio of the lengths of the longest and the shortest sentence in a training
            batch.
    """

    layer: int = 0  # type: ignore[assignment]
    model: Any
    budget: int = 1024
    max_length: int | None = None
    padding: float = 2.0

    @abstractmethod
    def split(self, sentences: Iterable[Sentence | Sequence[str]]) -> SplitSentences:
        """Split sentences into subwords."""

    @abstractmethod
    def forward(
        self, batch: WordBatch | Sequence[WordBatch], layers: Sequence[int]
    ) -> dict[int, Tensor]:
        """Return differentiable word vectors `[W, dim]` of the given layers; the vector of a word
        without subwords is zero.

        Args:
            batch: one batch, or several batches whose words are concatenated.
        """

    def merged(self) -> TrainableEncoder:
        """Return the encoder with its adapters merged into its weights, or the encoder itself if it
        has no adapters.
        """
        return self

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def encode(
        self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False
    ) -> Embeddings:
        """Return one vector per word from the encoder's layer; encoding is fastest for a
        `Sentences` object.
        """
        return self._encode(sentences, [self.layer], progress)[self.layer]

    def _encode(self, sentences: Any, layers: list[int], progress: bool) -> dict[int, Embeddings]:
        with self.reading(layers) as vectors:
            return extract(
                sentences,
                split=self.split,
                vectors=vectors,
                layers=layers,
                dim=self.dim,
                budget=self.budget,
                limit=self.max_length,
                progress=progress,
            )

    @contextmanager
    def reading(self, layers: Sequence[int]) -> Iterator[Callable[[WordBatch], dict[int, Tensor]]]:
        """Set the model to evaluation mode in the `with` block; yield a function that computes the
        word vectors of a batch.
        """
        device, precision = self.device, self.precision or "highest"

        def vectors(batch: WordBatch) -> dict[int, Tensor]:
            with arithmetic(precision, device):
                return check_finite(self.forward(batch.to(device), layers), self.name)

        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            yield vectors
        finally:
            for module in training:
                module.training = True
