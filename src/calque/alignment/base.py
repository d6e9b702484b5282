"""What every method of alignment is."""

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
    """A method that learns from parallel text and the word links of each text."""

    def align(self, encoder: Any, corpus: Text, pairs: WordPairs | Sequence[WordPairs], /, **kept: Any) -> Encoder: ...


class FromDictionary(Protocol):
    """A method that learns from the anchors of words, by language and layer, and dictionaries; none where it does without."""

    def align(
        self,
        encoder: Any,
        anchors: Mapping[str, Mapping[int, Anchors]],
        dictionaries: Sequence[Dictionary] = (),
        /,
        **kept: Any,
    ) -> Encoder: ...


class FromText(Protocol):
    """A method that learns from text of each language; of parallel text it takes the two sides for that."""

    def align(self, encoder: Any, texts: Mapping[str, Sentences] | Text, /, **kept: Any) -> Encoder: ...


@dataclass(frozen=True)
class Judged:
    """A figure that a method has of its result on held-out sentences.

    Attributes:
        table: name of the table in which a report shows it.
        langs: the languages that it is of.
        model: what was trained.
        metric: name of the figure.
        counts: `[n_sentences, n]`, of whose sums `statistic` makes it.
        statistic: see `calque.tasks.bootstrap`.
        percent: whether it is a fraction.
    """

    table: str
    langs: tuple[str, str]
    model: str
    metric: str
    counts: np.ndarray
    statistic: Callable[[np.ndarray], np.ndarray]
    percent: bool = True


class Method(ABC):
    """A way to align the languages of an encoder. What it gives is again an encoder, and says nothing of the way.

    A class from elsewhere that is named on the command line or in a study is made with `towards` and the options that
    were given there, all by keyword.

    Attributes:
        towards: the language that the others move towards.
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
        """An encoder whose languages lie together; `encoder` stays as it is.

        Args:
            encoder: the one to align.
            corpus, pairs: what it learns from, see `FromLinks`, `FromDictionary` and `FromText`.
            folder: where a method that trains keeps its checkpoints.
            checkpoint_every: updates between these.
            progress: show bars on standard error.
        """

    def settings(self) -> dict[str, Any]:
        """What the result depends on, for the record: by default all public attributes."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def judged(self) -> Sequence[Judged]:
        """Figures of the last `align` on text that it held out; none by default."""
        return ()

    def rows(self, load: Mapping[str, Any]) -> str:
        """Return what the rows of the aligned encoder are, see `Encoder.rows`.

        Args:
            load: further arguments of `load_encoder`, with which a study shows the encoder.

        Raises:
            SettingError: the encoder cannot be loaded with these.
        """
        if load:
            raise SettingError(f"{', '.join(load)}: the encoder of this method is shown as it is")
        return "words"

    def record(self) -> dict[str, Any]:
        """What the model card tells of the last `align`: `settings`, and what else there is."""
        return {"settings": self.settings()}
