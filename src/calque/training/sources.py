"""Where the vectors of a text's words come from, when a head is trained on them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from calque.distributed import Processes
from calque.encoders.batches import collate, token_batches
from calque.encoders.numerics import matmul_precision
from calque.offsets import ranges
from calque.threads import Threads
from calque.training.passes import Pass
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from calque.encoders.huggingface import HuggingFaceEncoder
    from calque.encoders.split import SplitSentences


@dataclass(frozen=True)
class WordRows:
    """The vectors of the words of some texts, one after the other.

    Attributes:
        rows: `[W, dim]`.
        lengths: int64 `[S]`, words of each text.
        numbers: int64 `[S]`, which texts these are.
    """

    rows: Tensor
    lengths: Tensor
    numbers: np.ndarray


class VectorSource(ABC):
    """Where the vectors of a text's words come from.

    Attributes:
        dim: dimensions of a vector.
        lengths: int64 `[n]`, words of each text.
        model: what is trained along with the head, if anything.
        threads: what an update is quickest with, see `Loop`.
    """

    dim: int
    lengths: np.ndarray
    model: nn.Module | None = None
    threads: Threads | None = None

    @abstractmethod
    def take(self, numbers: np.ndarray) -> WordRows:
        """The vectors of some texts, in an order of the source's own."""

    @abstractmethod
    def backward(self, gradient: Tensor) -> None:
        """Take the gradient in the rows of the last `take`."""


class FrozenSource(VectorSource):
    """Vectors that were computed once."""

    def __init__(self, embeddings: Embeddings, device: torch.device | str = "cpu"):
        self.dim = embeddings.dim
        self.lengths = np.diff(embeddings.offsets)
        self._offsets = embeddings.offsets
        self._data = torch.from_numpy(np.ascontiguousarray(embeddings.data, dtype=np.float32)).to(device)

    def take(self, numbers: np.ndarray) -> WordRows:
        lengths = self.lengths[numbers]
        rows = torch.from_numpy(ranges(self._offsets[numbers], lengths)).to(self._data.device)
        return WordRows(self._data.index_select(0, rows), torch.from_numpy(lengths), numbers)

    def backward(self, gradient: Tensor) -> None:
        pass


class SubsetSource(VectorSource):
    """Some texts of a source, by new numbers; `take` says the old ones."""

    def __init__(self, whole: VectorSource, kept: np.ndarray):
        self._whole, self._kept = whole, kept
        self.dim, self.lengths, self.model = whole.dim, whole.lengths[kept], whole.model
        self.threads = whole.threads

    def take(self, numbers: np.ndarray) -> WordRows:
        return self._whole.take(self._kept[numbers])

    def backward(self, gradient: Tensor) -> None:
        self._whole.backward(gradient)


class RenumberedSource(VectorSource):
    """A source of a part of some texts; `take` says which of the whole they are."""

    def __init__(self, part: VectorSource, numbers: np.ndarray):
        self._part, self._numbers = part, numbers
        self.dim, self.lengths = part.dim, part.lengths

    def take(self, numbers: np.ndarray) -> WordRows:
        found = self._part.take(numbers)
        return WordRows(found.rows, found.lengths, self._numbers[found.numbers])

    def backward(self, gradient: Tensor) -> None:
        self._part.backward(gradient)


class TrainedSource(VectorSource):
    """Vectors computed anew for each update, by an encoder that learns too.

    Args:
        encoder: is changed in place.
        split: the texts as subwords, and where their words are.
        threads: for the shares of an update, as many as `shares_at_once` says.
        processes: of this run.
    """

    def __init__(
        self,
        encoder: HuggingFaceEncoder,
        split: SplitSentences,
        threads: Threads,
        processes: Processes,
    ):
        self.dim, self.model = encoder.dim, encoder.model  # type: ignore[assignment]
        self.lengths = np.diff(split.word_offsets)
        self.threads = threads
        self._encoder, self._split, self._processes = encoder, split, processes

    def take(self, numbers: np.ndarray) -> WordRows:
        # Each share gets every n-th of the texts in order of length: about the same work for all.
        order = numbers[np.argsort(-self._split.lengths[numbers], kind="stable")]
        assert self.threads is not None
        count = min(self.threads.count, len(order))
        shares = [order[k::count] for k in range(count)]
        device = self._processes.device
        self._pass = Pass(
            self._encoder,
            [[collate(self._split, share).to(device)] for share in shares],
            [self._encoder.layer],
            threads=self.threads,
            context=self._processes.autocast,
        )
        taken = np.concatenate(shares)
        return WordRows(self._pass.vectors[self._encoder.layer], torch.from_numpy(self.lengths[taken]), taken)

    def backward(self, gradient: Tensor) -> None:
        self._pass.backward({self._encoder.layer: gradient})


def trainable_copy(encoder: HuggingFaceEncoder, device: torch.device) -> HuggingFaceEncoder:
    """The same encoder with weights of its own in float32."""
    found = copy.copy(encoder)
    found.model = copy.deepcopy(encoder.model)
    found.model.to(device=device).float()  # type: ignore[call-arg]
    return found


@torch.no_grad()
def vectors_of(encoder: HuggingFaceEncoder, split: SplitSentences, *, budget: int = 2048) -> Embeddings:
    """Vectors of texts that are split already, such as those whose only word is the first special subword."""
    device = encoder.device
    found = np.zeros((split.n_words, encoder.dim), dtype=np.float32)
    counts = np.diff(split.word_offsets)
    for numbers in token_batches(split.lengths, budget):
        with matmul_precision("highest"):
            rows = encoder.forward(collate(split, numbers).to(device), [encoder.layer])[encoder.layer]
        found[ranges(split.word_offsets[numbers], counts[numbers])] = rows.float().cpu().numpy()
    return Embeddings(found, split.word_offsets)
