"""Base class and interfaces of alignment methods."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, Unpack

from calque.errors import CalqueWarning, SettingError

if TYPE_CHECKING:
    import numpy as np

    from calque.anchors import Anchors
    from calque.annotated import Dictionary
    from calque.encoders.base import Encoder
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus, Sentences

    Text = ParallelCorpus | Sequence[ParallelCorpus]
    Links = WordPairs | Sequence[WordPairs]
    AnchorsByLayer = Mapping[str, Mapping[int, Anchors]]

C = TypeVar("C", bound=type)


class RunOptions(TypedDict, total=False):
    """Keyword arguments that the function `align` of every method accepts.

    Attributes:
        folder: folder for the checkpoints of methods that train the encoder.
        checkpoint_every: number of updates between checkpoints.
        progress: whether to show progress bars on standard error.
    """

    folder: str | Path | None
    checkpoint_every: int
    progress: bool


class FromLinks(Protocol):
    """Interface of methods that use parallel text with word links."""

    def align(self, encoder: Encoder, corpus: Text, pairs: Links, /, **run: Unpack[RunOptions]) -> Encoder: ...


class FromDictionary(Protocol):
    """Interface of methods that use anchors for each language and layer, and usually dictionaries."""

    def align(
        self, encoder: Encoder, anchors: AnchorsByLayer, dictionaries: Sequence[Dictionary] = (), /,
        **run: Unpack[RunOptions],
    ) -> Encoder: ...  # fmt: skip


class FromText(Protocol):
    """Interface of methods that use monolingual text in each language, or each side of parallel text separately."""

    def align(
        self, encoder: Encoder, texts: Mapping[str, Sentences] | Text, /, **run: Unpack[RunOptions]
    ) -> Encoder: ...


@dataclass(frozen=True)
class HeldOutScore:
    """Score of a trained model on held-out sentences.

    Attributes:
        table: name of the report table that contains the score.
        langs: the two languages of the test sentences.
        model: name of the trained model.
        metric: name of the metric.
        counts: counts for each sentence, from which the score is computed, `[n_sentences, n]`.
        statistic: function that computes the score from the sums of `counts`, see `calque.tasks.bootstrap`.
        percent: whether the score is a fraction that is displayed as a percentage.
    """

    table: str
    langs: tuple[str, str]
    model: str
    metric: str
    counts: np.ndarray
    statistic: Callable[[np.ndarray], np.ndarray]
    percent: bool = True


class Method(ABC):
    """Base class of alignment methods, which return an encoder.

    A class from another package can be named on the command line or in a study. Its constructor is called with `towards` and
    the user's options as keyword arguments, except for keyword arguments of its function `align`, which are passed to `align`.

    Attributes:
        towards: language that all other languages are aligned with.
    """

    towards: str

    @abstractmethod
    def align(self, encoder: Any, corpus: Any, pairs: Any, **run: Any) -> Encoder:
        """Return an aligned encoder; `encoder` is not changed.

        Args:
            encoder: encoder to align.
            corpus, pairs: training data, see `FromLinks`, `FromDictionary` and `FromText`.
            run: the arguments in `RunOptions`, and further options of the method.
        """

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the result, to be saved with it; the base class returns all public attributes."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def held_out_scores(self) -> Sequence[HeldOutScore]:
        """Return scores on held-out text from the last call of `align`; the base class returns no scores."""
        return ()

    def rows(self, load: Mapping[str, Any]) -> str:
        """Return the unit that each vector of the aligned encoder represents, see `Encoder.rows`.

        Args:
            load: further arguments of `load_encoder` that are set in a study.

        Raises:
            SettingError: the encoder does not support these arguments.
        """
        if load:
            raise SettingError(f"{', '.join(load)}: the method does not support these arguments; leave them out")
        return "words"

    def record(self) -> dict[str, Any]:
        """Return a record of the last call of `align` for the model card; its key `settings` contains the settings."""
        return {"settings": self.settings()}


def accept_renamed(**names: str) -> Callable[[C], C]:
    """Return a class decorator that accepts old argument names (`old="new"`) with a warning; the signature has only new names."""

    def decorate(kind: Any) -> Any:
        build, warned = kind.__init__, set()

        @wraps(build)
        def init(self: Any, **given: Any) -> None:
            for name in given.keys() & names.keys() - warned:
                warned.add(name)
                warnings.warn(CalqueWarning(f"{name} was renamed to {names[name]}; use the new name"), stacklevel=2)
            build(self, **{names.get(name, name): value for name, value in given.items()})

        kind.__init__, kind.renamed = init, names
        return kind

    return decorate
