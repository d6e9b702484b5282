"""What an encoder must have to be trained; its vectors follow from that."""

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
    """An encoder whose weights can be trained, and which can be fine-tuned for a task; `encode` comes with it.

    Attributes:
        layer: the layer that `encode` gives.
        model: what is trained, a `torch.nn.Module`.
        budget: subwords in a batch of `encode`, padding included.
        max_length: most subwords of a sentence, for messages; None for no limit.
        padding: how many times as long as its shortest sentence the longest of a training batch may be.
    """

    layer: int = 0  # type: ignore[assignment]
    model: Any
    budget: int = 1024
    max_length: int | None = None
    padding: float = 2.0

    @abstractmethod
    def split(self, sentences: Iterable[Sentence | Sequence[str]]) -> SplitSentences:
        """Return the sentences as the model reads them."""

    @abstractmethod
    def forward(self, batch: WordBatch | Sequence[WordBatch], layers: Sequence[int]) -> dict[int, Tensor]:
        """Return word vectors `[W, dim]` of the given layers, zero for a word without subwords; differentiable.

        Args:
            batch: one, or several whose words come one after the other.
        """

    def merged(self) -> TrainableEncoder:
        """Return the encoder with its adapters put into its weights, as others train and save it; itself where it has none."""
        return self

    @property
    def blocks(self) -> Any:
        """The layers of the model one above the other, a `torch.nn.ModuleList`; None where there is no such list."""
        return None

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def encode(self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False) -> Embeddings:
        """Return one vector per word, from the encoder's layer.

        Args:
            sentences: in any order; the result keeps it. `Sentences` of a corpus are the quickest.

        Warns:
            UncoveredWordsWarning: some words have no vector, being beyond `max_length` or nothing to the tokenizer.
        """
        return self._encode(sentences, [self.layer], progress)[self.layer]

    def _encode(self, sentences: Any, layers: list[int], progress: bool) -> dict[int, Embeddings]:
        with self.reading(layers) as vectors:
            return extract(
                sentences, split=self.split, vectors=vectors, layers=layers, dim=self.dim, budget=self.budget,
                limit=self.max_length, progress=progress,
            )  # fmt: skip

    @contextmanager
    def reading(self, layers: Sequence[int]) -> Iterator[Callable[[WordBatch], dict[int, Tensor]]]:
        """Put the model in evaluation mode inside the block, and yield a function that computes the word vectors of a batch."""
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
