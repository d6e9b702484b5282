"""Sources of word vectors for training task heads: precomputed vectors, or an encoder that is
trained with the head.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from calque.distributed import Processes
from calque.encoders.batches import WordBatch, collate, token_batches
from calque.encoders.numerics import arithmetic
from calque.encoders.split import SplitSentences
from calque.encoders.trainable import TrainableEncoder
from calque.nn.mixture import ScalarMix
from calque.offsets import ranges
from calque.vectors import Embeddings


@dataclass(frozen=True)
class WordRows:
    """Word vectors of several texts.

    Attributes:
        rows: word vectors of all texts, `[W, dim]`.
        lengths: number of word vectors of each text, int64 `[S]`.
        numbers: index of each text, int64 `[S]`.
        words: position of each vector's word in its text, int64 `[W]`; None if all words have a
            vector, in order.
    """

    rows: Tensor
    lengths: Tensor
    numbers: np.ndarray
    words: np.ndarray | None = None


class Pass:
    """A forward pass over batches of sentences, and its backward pass.

    Args:
        encoder: encoder whose model is already in training or evaluation mode.
        batches: batches of sentences; the list may be empty.
        context: context manager of the forward pass, such as autocast.
        gradient: whether to keep the graph for a backward pass.

    Attributes:
        vectors: detached word vectors of all batches, keyed by layer, float32 `[W, dim]`.
    """

    def __init__(
        self,
        encoder: TrainableEncoder,
        batches: Sequence[WordBatch],
        layers: Sequence[int],
        *,
        context: Callable[[], AbstractContextManager] = nullcontext,
        gradient: bool = True,
    ):
        vectors = dict.fromkeys(layers, torch.zeros(0, encoder.dim, device=encoder.device))
        if batches:
            with torch.set_grad_enabled(gradient), context():
                states = encoder.forward(batches, layers)
                vectors = {layer: rows.float() for layer, rows in states.items()}
        self.vectors: dict[int, Tensor] = {layer: vectors[layer].detach() for layer in layers}
        # vectors that are still attached to the graph of the forward pass
        self._attached: dict[int, Tensor] = vectors if gradient else {}

    def backward(self, gradients: dict[int, Tensor]) -> None:
        """Backpropagate the gradients of the vectors, and add the gradients of the weights to the
        existing gradients.

        Args:
            gradients: gradient of each layer's vectors, `[W, dim]`. Layers may be missing; layers
                below all trained weights are ignored.
        """
        layers = [layer for layer in gradients if self._attached[layer].requires_grad]
        if layers:
            torch.autograd.backward(
                [self._attached[layer] for layer in layers], [gradients[layer] for layer in layers]
            )


class VectorSource(ABC):
    """Interface that every source of word vectors implements.

    Attributes:
        dim: number of dimensions of a vector.
        lengths: number of word vectors of each text, int64 `[n]`.
        model: module that is trained together with the task head, or None.
    """

    dim: int
    lengths: np.ndarray
    model: nn.Module | None = None

    @abstractmethod
    def take(self, numbers: np.ndarray) -> WordRows:
        """Return the vectors of the texts with the indices `numbers`; the texts may be returned in
        any order.
        """

    def backward(self, gradient: Tensor) -> None:  # noqa: B027
        """Backpropagate the gradient of the vectors from the last `take`; sources of frozen vectors
        ignore the gradient.
        """


class FrozenSource(VectorSource):
    """Source of precomputed vectors.

    Args:
        device: device of the returned vectors.
        numbers: index of each text, returned in `WordRows.numbers`, int64 `[n]`; default: 0, 1, ….
        words: position of each vector's word in its text, int64 `[n_vectors]`; default: every word
            has a vector.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        device: torch.device | str = "cpu",
        numbers: np.ndarray | None = None,
        words: np.ndarray | None = None,
    ):
        self.dim, self._numbers, self._words = embeddings.dim, numbers, words
        self.lengths = np.diff(embeddings.offsets)
        self._offsets = embeddings.offsets
        data = np.ascontiguousarray(embeddings.data, dtype=np.float32)
        self._data = torch.from_numpy(data).to(device)

    def take(self, numbers: np.ndarray) -> WordRows:
        lengths = self.lengths[numbers]
        rows = ranges(self._offsets[numbers], lengths)
        vectors = self._data.index_select(0, torch.from_numpy(rows).to(self._data.device))
        words = None if self._words is None else self._words[rows]
        if self._numbers is not None:
            numbers = self._numbers[numbers]
        return WordRows(vectors, torch.from_numpy(lengths), numbers, words)


class ChosenWords(VectorSource):
    """Source of the vectors of selected words, which are read from stored vectors in each update.

    Args:
        chosen: mask of the selected words, bool `[n_words]`.
        device: device of the returned vectors.
    """

    def __init__(
        self, embeddings: Embeddings, chosen: np.ndarray, device: torch.device | str = "cpu"
    ):
        self.dim, self._data, self._device = embeddings.dim, embeddings.data, device
        self._rows = np.flatnonzero(chosen)
        self._offsets = np.searchsorted(self._rows, embeddings.offsets)
        self.lengths = np.diff(self._offsets)

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Return the indices of the selected words of the texts `numbers`, counted among all
        selected words, int64 `[W]`.
        """
        return ranges(self._offsets[numbers], self.lengths[numbers])

    def take(self, numbers: np.ndarray) -> WordRows:
        data = np.asarray(self._data[self._rows[self.places(numbers)]], dtype=np.float32)
        return WordRows(
            torch.from_numpy(data).to(self._device),
            torch.from_numpy(self.lengths[numbers]),
            numbers,
        )


class SubsetSource(VectorSource):
    """Source of the vectors of a subset of texts; `take` expects indices in the subset, and returns
    indices in `whole`.
    """

    def __init__(self, whole: VectorSource, kept: np.ndarray):
        self._whole, self._kept = whole, kept
        self.dim, self.lengths, self.model = whole.dim, whole.lengths[kept], whole.model

    def take(self, numbers: np.ndarray) -> WordRows:
        return self._whole.take(self._kept[numbers])

    def backward(self, gradient: Tensor) -> None:
        self._whole.backward(gradient)


class MixedSource(VectorSource):
    """Source of mixtures of layers, whose weights are trained together with the task head.

    Args:
        whole: source of the vectors of all layers side by side, `[W, n_layers * dim]`.
        mix: trained mixture.
    """

    def __init__(self, whole: VectorSource, mix: ScalarMix):
        self._whole, self._mix = whole, mix
        self.dim, self.lengths = mix.dim, whole.lengths
        self.model = mix if whole.model is None else nn.ModuleList([mix, whole.model])

    def take(self, numbers: np.ndarray) -> WordRows:
        batch = self._whole.take(numbers)
        self._layers = batch.rows.detach().requires_grad_(self._whole.model is not None)
        self._mixed = self._mix(self._layers)
        return replace(batch, rows=self._mixed.detach())

    def backward(self, gradient: Tensor) -> None:
        self._mixed.backward(gradient)
        if self._layers.grad is not None:
            self._whole.backward(self._layers.grad)


class LayerSource(VectorSource):
    """Source of the vectors of one layer.

    Args:
        whole: source of the frozen vectors of all layers side by side, `[W, n_layers * dim]`.
        index: index of the layer among those of `whole`.
        dim: number of dimensions of a vector.
    """

    def __init__(self, whole: VectorSource, index: int, dim: int):
        self._whole, self._columns = whole, slice(index * dim, (index + 1) * dim)
        self.dim, self.lengths = dim, whole.lengths

    def take(self, numbers: np.ndarray) -> WordRows:
        batch = self._whole.take(numbers)
        return replace(batch, rows=batch.rows[:, self._columns].contiguous())


class TrainedSource(VectorSource):
    """Source of vectors from an encoder that is trained together with the task head.

    Args:
        encoder: encoder to train, which is changed in place.
        split: texts that are already split into subwords.
        layers: layers whose vectors are returned side by side, `[W, n_layers * dim]`; default: the
            encoder's layer.
        budget: maximum number of subwords in a batch, including padding; default: a single batch of
            any size.
    """

    def __init__(
        self,
        encoder: TrainableEncoder,
        split: SplitSentences,
        processes: Processes,
        *,
        layers: Sequence[int] | None = None,
        budget: int | None = None,
    ):
        self._layers = [encoder.layer] if layers is None else list(layers)
        self.dim, self.model = len(self._layers) * encoder.dim, encoder.model
        self.lengths = np.diff(split.word_offsets)
        self._encoder = encoder
        self._split = split
        self._processes = processes
        self._budget = budget

    def take(self, numbers: np.ndarray) -> WordRows:
        # Texts of similar length share a batch, so that there is little padding.
        by_length = numbers[np.argsort(-self._split.lengths[numbers], kind="stable")]
        if self._budget is not None:
            batches = token_batches(self._split.lengths[by_length], self._budget)
            batches = [by_length[batch] for batch in batches]
        elif len(by_length):
            batches = [by_length]
        else:
            batches = []
        device = self._processes.device
        collated = [collate(self._split, batch).to(device) for batch in batches]
        self._pass = Pass(self._encoder, collated, self._layers, context=self._processes.autocast)
        rows = torch.cat([self._pass.vectors[layer] for layer in self._layers], dim=1)
        taken = np.concatenate([numbers[:0], *batches])
        return WordRows(rows, torch.from_numpy(self.lengths[taken]), taken)

    def backward(self, gradient: Tensor) -> None:
        parts = gradient.chunk(len(self._layers), dim=1)
        self._pass.backward(dict(zip(self._layers, parts, strict=True)))


def float32_copy(
    encoder: TrainableEncoder, device: torch.device, *, freeze: int | None = None
) -> TrainableEncoder:
    """Return a copy of the encoder in float32 with merged adapters.

    The weights of the embeddings and of the lowest `freeze` layers are shared with `encoder` if
    they are already float32 and on the device.
    """
    encoder = encoder.merged() if isinstance(encoder, TrainableEncoder) else encoder
    copied = copy.copy(encoder)
    # `deepcopy` looks weights up in this table by their id before it copies them.
    frozen = [] if freeze is None else encoder.lowest_parameters(freeze)
    shared = {id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in frozen}
    copied.model = copy.deepcopy(encoder.model, shared).to(device=device).float()
    return copied


def freeze_below(encoder: TrainableEncoder, layers: int | None) -> None:
    """Freeze the embeddings and the lowest `layers` layers of an encoder, and unfreeze all other
    weights; None freezes nothing.
    """
    for weight in encoder.parameters():
        weight.requires_grad_(True)
    if layers is not None:
        for weight in encoder.lowest_parameters(layers):
            weight.requires_grad_(False)


@torch.no_grad()
def vectors_of(
    encoder: TrainableEncoder,
    split: SplitSentences,
    layers: Sequence[int] | None = None,
    *,
    budget: int = 2048,
) -> Embeddings:
    """Compute the word vectors of texts that are already split into subwords.

    Args:
        layers: layers whose vectors are returned side by side, `[W, n_layers * dim]`; default: the
            encoder's layer.
    """
    numbers_of_layers = [encoder.layer] if layers is None else list(layers)
    n_columns = len(numbers_of_layers) * encoder.dim
    data = np.zeros((split.n_words, n_columns), dtype=np.float32)
    counts = np.diff(split.word_offsets)
    for numbers in token_batches(split.lengths, budget):
        batch = collate(split, numbers).to(encoder.device)
        with arithmetic("highest"):
            by_layer = encoder.forward(batch, numbers_of_layers)
        vectors = torch.cat([by_layer[layer].float() for layer in numbers_of_layers], dim=1)
        rows = ranges(split.word_offsets[numbers], counts[numbers])
        data[rows] = vectors.cpu().numpy()
    return Embeddings(data, split.word_offsets)
