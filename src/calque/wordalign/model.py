"""What every model of word alignment offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from calque.wordalign.bitext import Bitext
from calque.wordalign.links import Links
from calque.wordalign.vocabulary import Classes


@dataclass(frozen=True)
class Job:
    """A text to align, and how.

    Args:
        bitext: the text.
        ratio: how alike each pair of types is spelt, float32 `[n_pairs]`; empty for a model that does not look.
        seed: of what is drawn.
        threads: the result does not depend on it.
        step: called after every pass.
    """

    bitext: Bitext
    ratio: np.ndarray
    seed: int = 0
    threads: int = 1
    step: Callable[[], object] = lambda: None


class Model(ABC):
    """Trained tables, of both directions.

    Attributes:
        kind: its name.
        settings_type: the class of its settings, whose `passes` says how often training calls `step`.
        classes: which words count as one, if nothing else is said.
        reads_spelling: whether it wants to know how alike words are spelt.
    """

    kind: ClassVar[str]
    settings_type: ClassVar[type]
    classes: ClassVar[Classes] = Classes()
    reads_spelling: ClassVar[bool] = True
    settings: Any

    @classmethod
    @abstractmethod
    def fit(cls, job: Job, settings: Any) -> tuple[Self, Links]:
        """Train on a text and align it."""

    @abstractmethod
    def links(self, job: Job) -> Links:
        """Align further text; what was learnt stays as it is."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """All that is learnt, for saving."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], settings: Any) -> Self:
        """The model from what `arrays` gave."""
