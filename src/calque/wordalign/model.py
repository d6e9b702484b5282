"""Models of word alignment: what they are given and return, and how they share the work among threads."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.wordalign.bitext import Bitext
from calque.wordalign.similarity import Similarities
from calque.wordalign.vocabulary import Classes

T = TypeVar("T")
SHARDS = 8  # at most; a constant, never the number of threads: sums of floats depend on how they are grouped
CELLS_PER_SHARD = 1 << 19
MOST_COUNTS = 1 << 28  # numbers in all shards, unless there are two


def n_shards(n_cells: int, n_pairs: int) -> int:
    """Return the number of parts in which a text is worked on; each has counts of its own for all pairs of types."""
    shards = min(SHARDS, max(1, n_cells // CELLS_PER_SHARD), max(2, MOST_COUNTS // max(1, n_pairs)))
    return 1 << (int(shards).bit_length() - 1)  # as many for each of two or four threads


def n_threads(threads: int | None) -> int:
    """Return the number of threads to use: as asked, or as many as this process may run on.

    Raises:
        SettingError: fewer than one.
    """
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads < 1:
        raise SettingError(f"threads={threads}, expected 1 or more")
    return threads


def run(tasks: list[Callable[[], T]], threads: int) -> list[T]:
    """Return the results of tasks, in their order; compiled loops run side by side."""
    if threads == 1 or len(tasks) == 1:
        return [task() for task in tasks]
    with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
        return list(pool.map(lambda task: task(), tasks))


class Links(NamedTuple):
    """The best position of every word on the other side.

    Attributes:
        forward: int32 `[n_target_words]`, source position of each target word, -1 for none.
        backward: int32 `[n_source_words]`, target position of each source word, -1 for none.
        forward_posterior, backward_posterior: float32, how probable the links are.
    """

    forward: np.ndarray
    backward: np.ndarray
    forward_posterior: np.ndarray
    backward_posterior: np.ndarray

    @classmethod
    def none(cls, bitext: Bitext) -> Links:
        """Return arrays without links."""
        n_source, n_target = len(bitext.source.words), len(bitext.target.words)
        return cls(
            np.full(n_target, -1, np.int32), np.full(n_source, -1, np.int32),
            np.zeros(n_target, np.float32), np.zeros(n_source, np.float32),
        )  # fmt: skip

    def part(self, before: np.ndarray, after: np.ndarray) -> Links:
        """Return the links of consecutive sentence pairs.

        Args:
            before, after: numbers of source and target words before the first of them, and up to the end of the last.
        """
        (source, target), (source_end, target_end) = before.tolist(), after.tolist()
        return Links(
            self.forward[target:target_end], self.backward[source:source_end],
            self.forward_posterior[target:target_end], self.backward_posterior[source:source_end],
        )  # fmt: skip

    def direction(self, across: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return links and posteriors from source to target words (`across`), or the other way."""
        return (self.forward, self.forward_posterior) if across else (self.backward, self.backward_posterior)

    def pairs(self, corpus: ParallelCorpus, across: bool) -> WordPairs:
        """Return the links of one direction, of the sentence pairs of `corpus`, as pairs of positions."""
        observed = (corpus.target if across else corpus.source).lengths()
        others, posterior = self.direction(across)
        n = int(observed.sum())
        at = np.flatnonzero(others[:n] >= 0)
        sentence = np.repeat(np.arange(len(observed)), observed)[at]
        position = at - offsets_of(observed)[sentence]
        ends = (others[at], position) if across else (position, others[at])
        return WordPairs(sentence, *ends, n_sentences=len(observed), posterior=posterior[at])


@dataclass(frozen=True)
class Job:
    """A text to align, and how.

    Args:
        alike: how alike each pair of types is spelt, as `spelling.shared` says it, uint16 `[n_pairs]`; when it is called.
        keys: of what is drawn for each sentence pair of a further text, uint64 `[n_sentences]`; None in training.
        threads: the result does not depend on it.
        step: called after every pass.
        similarities: of the words of each sentence pair, as a prior of their links; none if None.
    """

    bitext: Bitext
    alike: Callable[[], np.ndarray]
    seed: int = 0
    keys: np.ndarray | None = None
    threads: int = 1
    step: Callable[[], object] = lambda: None
    similarities: Similarities | None = None


class Model(ABC):
    """Trained tables of both directions.

    Attributes:
        kind: its name.
        settings_type: the class of its settings, whose `passes` is the number of times that training calls `step`.
        classes: which words count as one by default.
    """

    kind: ClassVar[str]
    settings_type: ClassVar[type]
    classes: ClassVar[Classes] = Classes()
    settings: Any

    @classmethod
    @abstractmethod
    def fit(cls, job: Job, settings: Any) -> tuple[Self, Links]:
        """Train on a text and align it."""

    @abstractmethod
    def links(self, job: Job) -> Links:
        """Align further text; the tables do not change."""

    @classmethod
    def settings_of(cls, saved: dict[str, Any]) -> Any:
        """Build the settings from their `asdict`."""
        return cls.settings_type(**saved)

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], settings: Any) -> Self:
        """Build the model from what `arrays` gave."""
