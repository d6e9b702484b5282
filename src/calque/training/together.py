"""Two objectives over one model, whose updates take turns; and an alignment in the run in which a task is learnt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from calque.distributed import Processes
from calque.encoders.trainable import TrainableEncoder
from calque.training.objective import Objective
from calque.training.plan import Plan

if TYPE_CHECKING:
    from calque.encoders.base import Encoder

When = Literal["before", "during", "after"]
#: an update of the first objective and updates of the second
Joined = tuple[Any, list[Any]]


@dataclass(frozen=True)
class Beside:
    """A second objective, to be minimised along with a first that trains the same model.

    Attributes:
        objective: its module is the model, or a part of it.
        plan: its updates.
        passes: how often it goes through its plan while the first goes through its own.
        frozen: weights that it leaves as they are, whatever the first does with them.
    """

    objective: Objective[Any]
    plan: Plan[Any]
    passes: float = 1.0
    frozen: Sequence[nn.Parameter] = ()


class TogetherPlan:
    """The updates of one plan, and with each those of a second that are due: of n updates and m of the second, the second's
    number j comes with the first's number k if ⌊k·m/n⌋ ≤ j < ⌊(k + 1)·m/n⌋.

    So the second is spread evenly, whichever of the two is longer, and a training that ends early has seen as much of both.

    Args:
        first: says what an epoch is.
        epochs: how often it is gone through.
        second: the same with `passes`; it is begun again where it ends.
    """

    def __init__(self, first: Plan[Any], second: Plan[Any], *, epochs: float, passes: float):
        self._first, self._second = first, second
        self.steps_per_epoch = first.steps_per_epoch
        self.updates = max(1, round(epochs * first.steps_per_epoch))
        self.second_updates = max(1, round(passes * second.steps_per_epoch))
        self._known: tuple[int, Sequence[Any]] = (-1, ())

    def epoch(self, number: int) -> list[Joined]:
        start = number * self.steps_per_epoch
        return [(update, self._due(start + k)) for k, update in enumerate(self._first.epoch(number))]

    def _due(self, k: int) -> list[Any]:
        places = range(k * self.second_updates // self.updates, (k + 1) * self.second_updates // self.updates)
        return [self._update(place) for place in places]

    def _update(self, place: int) -> Any:
        number, position = divmod(place, self._second.steps_per_epoch)
        if self._known[0] != number:
            self._known = (number, self._second.epoch(number))
        return self._known[1][position]


class Together(Objective[Joined]):
    """A first objective that says when an epoch is over and which state is kept, and a second over the same weights.

    After an update of the first comes each update of the second that is due, with one optimiser and its one memory. Weights
    that the second does not share, such as a head's, stay as they are meanwhile. (The published code of Gaschi et al. (2023)
    adds the gradients of a fixed number of batches instead.)

    Args:
        first: its module has all that is trained.
        beside: the second.

    Attributes:
        seconds: how many updates of the second there were.
    """

    def __init__(self, first: Objective[Any], beside: Beside):
        self.module, self._first, self._beside = first.module, first, beside
        frozen = {id(weight) for weight in beside.frozen}
        every = [p for p in beside.objective.module.parameters() if p.requires_grad]
        self._shared = nn.ParameterList(p for p in every if id(p) not in frozen)
        self.seconds = 0

    def turns(self, update: Joined) -> list[tuple[Joined, nn.Module]]:
        first, seconds = update
        return [((first, []), self.module), *(((None, [each]), self._shared) for each in seconds)]

    def backward(self, update: Joined) -> dict[str, float]:
        first, seconds = update
        if not seconds:
            return self._first.backward(first)
        (second,) = seconds
        with self._frozen():
            terms = self._beside.objective.backward(second)
        self.seconds += 1
        return {f"second {name}": value for name, value in terms.items()}

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        try:
            for weight in self._beside.frozen:
                weight.requires_grad_(False)
            yield
        finally:
            for weight in self._beside.frozen:
                weight.requires_grad_(True)

    def after_update(self, step: int) -> None:
        self._first.after_update(step)
        self._beside.objective.after_update(self.seconds)

    def after_epoch(self) -> None:
        self._first.after_epoch()
        self.ended = self._first.ended

    def state(self) -> dict[str, Any]:
        return {"first": self._first.state(), "second": self._beside.objective.state(), "seconds": self.seconds}

    def load_state(self, state: dict[str, Any]) -> None:
        self._first.load_state(state["first"])
        self._beside.objective.load_state(state["second"])
        self.seconds, self.ended = state["seconds"], self._first.ended

    def scores(self) -> dict[str, float]:
        return self._first.scores()


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
