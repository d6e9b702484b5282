"""Interfaces of alignment methods."""

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
    """Keyword arguments of the function `align` of every method.

    Attributes:
        folder: folder for the checkpoints of methods that train.
        checkpoint_every: number of updates between checkpoints.
        progress: whether to show progress bars on standard error.
    """

    folder: str | Path | None
    checkpoint_every: int
    progress: bool


class FromLinks(Protocol):
    """Interface of methods that use parallel text and the word links of each text."""

    def align(self, encoder: Encoder, corpus: Text, pairs: Links, /, **run: Unpack[RunOptions]) -> Encoder: ...


class FromDictionary(Protocol):
    """Interface of methods that use anchors by language and layer, and usually dictionaries."""

    def align(
        self, encoder: Encoder, anchors: AnchorsByLayer, dictionaries: Sequence[Dictionary] = (), /,
        **run: Unpack[RunOptions],
    ) -> Encoder: ...  # fmt: skip


class FromText(Protocol):
    """Interface of methods that use plain text of each language, or the sides of parallel text."""

    def align(
        self, encoder: Encoder, texts: Mapping[str, Sentences] | Text, /, **run: Unpack[RunOptions]
    ) -> Encoder: ...


@dataclass(frozen=True)
class HeldOutScore:
    """A score of a method's result on held-out sentences.

    Attributes:
        table: name of the table in a report.
        langs: languages of the score.
        model: name of the trained model.
        metric: name of the metric.
        counts: counts of each sentence, `[n_sentences, n]`.
        statistic: function that computes the score from the sums of `counts`, see `calque.tasks.bootstrap`.
        percent: whether the score is a fraction, which is displayed in per cent.
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

    A class of another package, named on the command line or in a study, is built with `towards` and the given options as
    keyword arguments. Options that are keyword arguments of its function `align` are passed to `align` instead.

    Attributes:
        towards: language that all other languages are aligned with.
    """

    towards: str

    @abstractmethod
    def align(self, encoder: Any, corpus: Any, pairs: Any, **run: Any) -> Encoder:
        """Return an aligned encoder; `encoder` is not changed.

        Args:
            encoder: encoder to align.
            corpus, pairs: data, see `FromLinks`, `FromDictionary` and `FromText`.
            run: see `RunOptions`, and further options of the method.
        """

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the result, for the record; the base class returns all public attributes."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def held_out_scores(self) -> Sequence[HeldOutScore]:
        """Return the scores of the last call of `align` on held-out text; the base class returns no scores."""
        return ()

    def rows(self, load: Mapping[str, Any]) -> str:
        """Return the unit that a vector of the aligned encoder represents, see `Encoder.rows`.

        Args:
            load: further arguments of `load_encoder` that a study contains.

        Raises:
            SettingError: the encoder does not support these arguments.
        """
        if load:
            raise SettingError(f"{', '.join(load)}: the method does not support these arguments; leave them out")
        return "words"

    def record(self) -> dict[str, Any]:
        """Return the record of the last call of `align` for the model card; the key `settings` contains the settings."""
        return {"settings": self.settings()}


def accept_renamed(**names: str) -> Callable[[C], C]:
    """Decorate a class to accept arguments by old names (`old="new"`), which are not in its signature, with a warning."""

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
