"""Base class and interfaces of alignment methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.alignment.data import training_data
from calque.errors import SettingError
from calque.spec import Documented, values_of

if TYPE_CHECKING:
    import numpy as np

    from calque.encoders.base import Encoder


@dataclass(frozen=True)
class Run:
    """How a method is run. These settings do not change the result.

    Attributes:
        folder: folder for checkpoints, from which interrupted training resumes with bitwise
            identical results; if None, there are no checkpoints. Delete the last checkpoint once
            the result is saved.
        checkpoint_every: number of updates between checkpoints, or 0 for none. A checkpoint is also
            saved once a minute.
        progress: whether to show progress bars on standard error.
    """

    folder: str | Path | None = None
    checkpoint_every: int = 200
    progress: bool = False


@dataclass(frozen=True)
class HeldOutScore:
    """Score of a trained model on held-out sentences.

    Attributes:
        table: name of the report table that contains the score.
        langs: the two languages of the test sentences.
        model: name of the trained model.
        metric: name of the metric.
        counts: counts for each sentence, from which the score is computed, `[n_sentences, n]`.
        statistic: function that computes the score from the sums of `counts`, see
            `calque.tasks.bootstrap`.
        percent: whether the score is a fraction that is displayed as a percentage.
    """

    table: str
    langs: tuple[str, str]
    model: str
    metric: str
    counts: np.ndarray
    statistic: Callable[[np.ndarray], np.ndarray]
    percent: bool = True


@dataclass(frozen=True)
class Fitted:
    """Result of a method.

    Attributes:
        encoder: aligned encoder.
        record: facts about the fit for the model card; its key `settings` contains the settings
            that determine the result. If it is empty, the card shows `Method.settings`.
        history: loss terms of each update, for methods that train the encoder.
        scores: scores on held-out text.
    """

    encoder: Encoder
    record: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, float]] = ()
    scores: Sequence[HeldOutScore] = ()


class Method(Documented, ABC):
    """Base class of alignment methods, which return an encoder.

    A class from another package can be named on the command line or in a study. Its constructor is
    called with `towards` and the user's options as keyword arguments. A method does not change when
    it is run.

    Attributes:
        towards: language that all other languages are aligned with.
    """

    towards: str

    @abstractmethod
    def fit(self, encoder: Any, data: Any, run: Run = Run()) -> Fitted:
        """Align an encoder, which is not changed.

        Args:
            encoder: encoder to align.
            data: the kind of training data that the method learns from: `LinkedText`,
                `Dictionaries` or `PlainText`.
            run: how to run the method.
        """

    def align(self, encoder: Any, data: Any, pairs: Any = None, **run: Any) -> Any:
        """Return the aligned encoder.

        Args:
            encoder: encoder to align.
            data, pairs: training data, see `training_data`.
            run: attributes of `Run`.

        Raises:
            SettingError: an argument is not an attribute of `Run`.
        """
        unknown = run.keys() - {each.name for each in fields(Run)}
        if unknown:
            name = min(unknown)
            fact = (
                f"{name} is not an argument of align, which accepts folder, checkpoint_every and "
                "progress"
            )
            raise SettingError(
                f"{fact}; settings are arguments of the class: {type(self).__name__}({name}=…)"
            )
        return self.fit(encoder, training_data(data, pairs), Run(**run)).encoder

    def settings(self) -> dict[str, Any]:
        """Return the settings to be saved with the result; the base class returns all public
        attributes except settings with the role "run".
        """
        of_run = values_of(self, "run")
        return {
            name: value
            for name, value in vars(self).items()
            if not name.startswith("_") and name not in of_run
        }

    def rows(self, load: Mapping[str, Any]) -> str:
        """Return the unit that each vector of the aligned encoder represents, see `Encoder.rows`.

        Args:
            load: further arguments of `load_encoder` that are set in a study.

        Raises:
            SettingError: the encoder does not support these arguments.
        """
        if load:
            raise SettingError(
                f"{', '.join(load)}: the method does not support these arguments; leave them out"
            )
        return "words"
