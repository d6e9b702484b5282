"""What every model of word alignment takes, gives and offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.wordalign.bitext import Bitext
from calque.wordalign.matrices import Similarities
from calque.wordalign.vocabulary import Classes


@dataclass
class Links:
    """The best position of every word on the other side.

    Args:
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
        """No links yet."""
        n_source, n_target = len(bitext.source.words), len(bitext.target.words)
        return cls(
            np.full(n_target, -1, np.int32), np.full(n_source, -1, np.int32),
            np.zeros(n_target, np.float32), np.zeros(n_source, np.float32),
        )  # fmt: skip

    def part(self, before: np.ndarray, after: np.ndarray) -> Links:
        """Those of some sentence pairs one after the other: how many words of both sides are before them, and up to their
        end."""
        (source, target), (source_end, target_end) = before.tolist(), after.tolist()
        return Links(
            self.forward[target:target_end], self.backward[source:source_end],
            self.forward_posterior[target:target_end], self.backward_posterior[source:source_end],
        )  # fmt: skip

    def direction(self, across: bool) -> tuple[np.ndarray, np.ndarray]:
        """Links and posteriors from source to target words (`across`), or the other way."""
        return (self.forward, self.forward_posterior) if across else (self.backward, self.backward_posterior)

    def pairs(self, corpus: ParallelCorpus, across: bool) -> WordPairs:
        """The links of one direction, of the sentence pairs of `corpus`, as pairs of positions."""
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
        bitext: the text.
        alike: how alike each pair of types is spelt, as `spelling.shared` says it, uint16 `[n_pairs]`; when it is called.
        seed: of what is drawn.
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
    """Trained tables, of both directions.

    Attributes:
        kind: its name.
        settings_type: the class of its settings, whose `passes` says how often training calls `step`.
        classes: which words count as one, if nothing else is said.
    """

    kind: ClassVar[str]
    settings_type: ClassVar[type]
    classes: ClassVar[Classes] = Classes()
    settings: Any

    @classmethod
    @abstractmethod
    def fit(cls, job: Job, settings: Any) -> tuple[Self, Links | None]:
        """Train on a text and align it; no links where the text's cells are not held in memory, so that whoever wants them asks
        for some sentence pairs at a time. Those are the same."""

    @abstractmethod
    def links(self, job: Job) -> Links:
        """Align further text; what was learnt stays as it is."""

    @classmethod
    def settings_of(cls, saved: dict[str, Any]) -> Any:
        """Its settings, from what `asdict` made of them."""
        return cls.settings_type(**saved)

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """All that is learnt, for saving."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], settings: Any) -> Self:
        """The model from what `arrays` gave."""
