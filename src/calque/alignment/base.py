"""Interfaces of alignment methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from calque.errors import SettingError

if TYPE_CHECKING:
    import numpy as np

    from calque.anchors import Anchors
    from calque.annotated import Dictionary
    from calque.encoders.base import Encoder
    from calque.pairs import WordPairs
    from calque.text import ParallelCorpus, Sentences

    Text = ParallelCorpus | Sequence[ParallelCorpus]


class FromLinks(Protocol):
    """Interface of methods that use parallel text and the word links of each text."""

    def align(self, encoder: Any, corpus: Text, pairs: WordPairs | Sequence[WordPairs], /, **kept: Any) -> Encoder: ...


class FromDictionary(Protocol):
    """Interface of methods that use anchors by language and layer, and dictionaries unless the method needs none."""

    def align(
        self,
        encoder: Any,
        anchors: Mapping[str, Mapping[int, Anchors]],
        dictionaries: Sequence[Dictionary] = (),
        /,
        **kept: Any,
    ) -> Encoder: ...


class FromText(Protocol):
    """Interface of methods that use plain text of each language, or the sides of parallel text."""

    def align(self, encoder: Any, texts: Mapping[str, Sentences] | Text, /, **kept: Any) -> Encoder: ...


@dataclass(frozen=True)
class Judged:
    """A score of a method's result on held-out sentences.

    Attributes:
        table: name of the table in a report.
        langs: languages of the score.
        model: name of the trained model.
        metric: name of the metric.
        counts: counts of each sentence `[n_sentences, n]`, from whose sums `statistic` computes the score.
        statistic: see `calque.tasks.bootstrap`.
        percent: whether the score is a fraction, shown in per cent.
    """

    table: str
    langs: tuple[str, str]
    model: str
    metric: str
    counts: np.ndarray
    statistic: Callable[[np.ndarray], np.ndarray]
    percent: bool = True


class Method(ABC):
    """Base class of alignment methods, whose result is again an encoder.

    A class of another package that is named on the command line or in a study is built with `towards` and the given options as
    keyword arguments.

    Attributes:
        towards: language that the others are aligned with.
    """

    towards: str

    @abstractmethod
    def align(
        self,
        encoder: Any,
        corpus: Any,
        pairs: Any,
        *,
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
    ) -> Encoder:
        """Return an aligned encoder; `encoder` is not changed.

        Args:
            encoder: encoder to align.
            corpus, pairs: data, see `FromLinks`, `FromDictionary` and `FromText`.
            folder: folder for checkpoints, for methods that train.
            checkpoint_every: number of updates between checkpoints.
            progress: show bars on standard error.
        """

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine the result, for the record; default: all public attributes."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def judged(self) -> Sequence[Judged]:
        """Return scores of the last `align` on held-out text; default: none."""
        return ()

    def rows(self, load: Mapping[str, Any]) -> str:
        """Return the unit of the aligned encoder's rows, see `Encoder.rows`.

        Args:
            load: further arguments of `load_encoder` from a study.

        Raises:
            SettingError: the encoder does not support these arguments.
        """
        if load:
            raise SettingError(f"{', '.join(load)}: the encoder of this method is shown as it is")
        return "words"

    def record(self) -> dict[str, Any]:
        """Return the record of the last `align` for the model card, with `settings`."""
        return {"settings": self.settings()}
