"""Aligning an encoder once more, in the same run in which it is trained for a task: what the task need know of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from calque.distributed import Processes
from calque.encoders.trainable import TrainableEncoder
from calque.training.together import Beside

if TYPE_CHECKING:
    from calque.encoders.base import Encoder

When = Literal["before", "during", "after"]


class Realignment(ABC):
    """An alignment that a task's training has before, beside or behind it (Gaschi et al. 2023, "Exploring the Relationship
    between Alignment and Cross-lingual Transfer in Multilingual Transformers").

    Attributes:
        when: see above.
    """

    when: When

    @abstractmethod
    def prepare(self, encoder: Encoder, sources: Sequence[str]) -> None:
        """Make ready whatever does not depend on a seed.

        Args:
            sources: the languages that the task is learnt in.

        Raises:
            SettingError: this encoder has no weights to train, or the text does not fit.
        """

    @abstractmethod
    def align(self, encoder: TrainableEncoder, *, seed: int = 0, progress: bool = False) -> TrainableEncoder:
        """An aligned copy of an encoder, for "before" and "after"; with seed 0, what `calque align` would make of it."""

    @abstractmethod
    def beside(
        self,
        learning: TrainableEncoder,
        encoder: TrainableEncoder,
        *,
        seed: int,
        processes: Processes,
    ) -> Beside:
        """The loss of the alignment, for "during".

        Args:
            encoder: the same as it was before.
            seed: of the order of the text.
        """

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All that decides the result, for the record: under `realign` in words, and under `realignment` in detail."""
