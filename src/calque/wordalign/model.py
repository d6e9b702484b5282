"""Interface of the word alignment models, and a function that runs tasks in threads."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from calque.errors import check_number
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.wordalign.bitext import Bitext
from calque.wordalign.similarity import Similarities
from calque.wordalign.vocabulary import Classes

T = TypeVar("T")
# maximum number of shards; fixed, so that float sums do not depend on the number of threads
SHARDS = 8
CELLS_PER_SHARD = 1 << 19  # minimum number of cells per shard
# maximum total number of counts over all shards; not enforced if there are only two shards
MAX_COUNTS = 1 << 28


def n_shards(n_cells: int, n_pairs: int) -> int:
    """Return the number of shards for a text, a power of two; each shard has separate counts for
    all type pairs.
    """
    filled = max(1, n_cells // CELLS_PER_SHARD)
    in_memory = max(2, MAX_COUNTS // max(1, n_pairs))
    shards = min(SHARDS, filled, in_memory)
    return 1 << (shards.bit_length() - 1)  # round down to a power of two


def n_threads(threads: int | None) -> int:
    """Return the number of threads; None means the number of available processors."""
    if threads is None:
        # `sched_getaffinity` respects the limits of a container, but not all systems have it.
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    check_number("threads", threads, least=1, whole=True)
    return threads


def run(tasks: list[Callable[[], T]], threads: int) -> list[T]:
    """Run tasks in threads, and return their results in order; compiled loops release the GIL, so
    they run in parallel.
    """
    if threads == 1 or len(tasks) == 1:
        return [task() for task in tasks]
    with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
        return list(pool.map(lambda task: task(), tasks))


class Links(NamedTuple):
    """The position on the other side to which each word is aligned, in both directions.

    Attributes:
        forward: source position of each target word, or -1 for null, int32 `[n_target_words]`.
        backward: target position of each source word, or -1 for null, int32 `[n_source_words]`.
        forward_posterior, backward_posterior: posterior probability of each link, float32.
    """

    forward: np.ndarray
    backward: np.ndarray
    forward_posterior: np.ndarray
    backward_posterior: np.ndarray

    @classmethod
    def none(cls, bitext: Bitext) -> Links:
        """Return links in which every word is aligned to null."""
        n_source, n_target = len(bitext.source.words), len(bitext.target.words)
        return cls(
            np.full(n_target, -1, np.int32),
            np.full(n_source, -1, np.int32),
            np.zeros(n_target, np.float32),
            np.zeros(n_source, np.float32),
        )

    def part(self, before: np.ndarray, after: np.ndarray) -> Links:
        """Return the links of a range of consecutive sentence pairs.

        Args:
            before, after: numbers of source and target words before the start and before the end of
                the range, int64 `[2]`.
        """
        source = slice(int(before[0]), int(after[0]))
        target = slice(int(before[1]), int(after[1]))
        return Links(
            self.forward[target],
            self.backward[source],
            self.forward_posterior[target],
            self.backward_posterior[source],
        )

    def direction(self, across: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the links and posteriors of the target words if `across` is true, otherwise of the
        source words.
        """
        if across:
            return self.forward, self.forward_posterior
        return self.backward, self.backward_posterior

    def pairs(self, corpus: ParallelCorpus, across: bool) -> WordPairs:
        """Return the links of one direction as pairs of word positions in the sentence pairs of
        `corpus`.
        """
        observed_side = corpus.target if across else corpus.source
        lengths = observed_side.lengths()
        linked_to, posterior = self.direction(across)
        # The links may cover more text than `corpus`, which then comes first.
        words = np.flatnonzero(linked_to[: int(lengths.sum())] >= 0)
        sentence = np.repeat(np.arange(len(lengths)), lengths)[words]
        position = words - offsets_of(lengths)[sentence]
        if across:
            source, target = linked_to[words], position
        else:
            source, target = position, linked_to[words]
        return WordPairs(
            sentence, source, target, n_sentences=len(lengths), posterior=posterior[words]
        )


@dataclass(frozen=True)
class Job:
    """A text to train on or to align, with the seed, the number of threads and the prior.

    Args:
        alike: function that returns the spelling similarity of each type pair, uint16 `[n_pairs]`;
            see `vocabulary.shared`.
        keys: seed of each sentence pair of a new text, uint64 `[n_sentences]`, or None in training.
        threads: number of threads, which does not affect the result.
        step: function that is called after each pass.
        similarities: word similarities used as a prior for the links, see `calque.wordalign.prior`;
            default: no prior.
    """

    bitext: Bitext
    alike: Callable[[], np.ndarray]
    seed: int = 0
    keys: np.ndarray | None = None
    threads: int = 1
    step: Callable[[], object] = lambda: None
    similarities: Similarities | None = None


class ModelSettings(Protocol):
    """Settings of a model: a frozen dataclass."""

    @property
    def passes(self) -> int:
        """Number of calls to `Job.step` in training."""
        ...


S = TypeVar("S", bound=ModelSettings)


class Model(ABC, Generic[S]):
    """Trained word alignment model for both directions.

    Attributes:
        name: name of the model.
        settings_type: class of the settings.
        classes: default settings of the word classes.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type]
    classes: ClassVar[Classes] = Classes()
    settings: S

    @classmethod
    @abstractmethod
    def fit(cls, job: Job, settings: S) -> tuple[Self, Links]:
        """Train on a text, and return the model and the links of this text."""

    @abstractmethod
    def links(self, job: Job) -> Links:
        """Return the links of a new text without changing the model."""

    @classmethod
    def settings_of(cls, saved: dict[str, Any]) -> S:
        """Rebuild the settings from the saved result of `asdict`."""
        return cls.settings_type(**saved)

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to be saved."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], settings: S) -> Self:
        """Rebuild the model from the result of `arrays`."""
