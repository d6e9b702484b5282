"""The base class of encoders with trainable weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import cast

import torch
from torch import Tensor, nn

from calque.encoders.base import Encoder
from calque.encoders.batches import WordBatch
from calque.encoders.extraction import extract
from calque.encoders.layers import find_blocks
from calque.encoders.numerics import arithmetic, check_finite
from calque.encoders.split import SplitSentences
from calque.errors import SettingError
from calque.text import Sentence, Sentences
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
        has_special_tokens: whether `split` can put special tokens around a sentence, such as [CLS]
            and [SEP].
    """

    layer: int = 0  # type: ignore[assignment]
    model: nn.Module
    budget: int = 1024
    max_length: int | None = None
    padding: float = 2.0
    has_special_tokens: bool = False

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

    def split_sequences(self, texts: Sequence[Sentences]) -> SplitSentences:
        """Split texts, or pairs of texts joined into one sequence; the only "word" of a sequence is
        its first special token.

        Args:
            texts: one column of texts, or two columns for pairs.

        Raises:
            SettingError: the encoder puts no special token before a text.
        """
        raise SettingError(
            f"head cls requires a special token before each text, but {self.name} has no such "
            "token; use head mean or bilstm"
        )

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return an iterator over the weights of the model."""
        return self.model.parameters()

    def lowest_parameters(self, n_layers: int) -> list[nn.Parameter]:
        """Return the weights of the embeddings and of the lowest `n_layers` layers.

        Raises:
            SettingError: the model does not have more than `n_layers` layers, or its list of layers
                was not found.
        """
        config = getattr(self.model, "config", None)
        depth = getattr(config, "num_hidden_layers", None)
        blocks = find_blocks(self.model, depth)
        if blocks is None:
            raise SettingError(
                f"{type(self.model).__name__} has no list of {depth} layers; leave out freeze"
            )
        layers = list(cast("nn.ModuleList", self.model.get_submodule(blocks)))
        if not 0 <= n_layers < len(layers):
            raise SettingError(
                "freeze must be at least 0 and below the encoder's number of layers, "
                f"{len(layers)}, got {n_layers}"
            )
        upper = {id(weight) for layer in layers[n_layers:] for weight in layer.parameters()}
        # Parameters are registered in this order: embeddings, layers, later modules.
        return list(takewhile(lambda weight: id(weight) not in upper, self.parameters()))

    def merged(self) -> TrainableEncoder:
        """Return the encoder with its adapters merged into its weights, or the encoder itself if it
        has no adapters.
        """
        return self

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def encode(
        self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False
    ) -> Embeddings:
        """Return one vector per word from the encoder's layer; encoding is fastest for a
        `Sentences` object.
        """
        return self._encode(sentences, [self.layer], progress)[self.layer]

    def _encode(
        self, sentences: Iterable[Sentence | Sequence[str]], layers: list[int], progress: bool
    ) -> dict[int, Embeddings]:
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
