"""What every method of alignment is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
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

    def judged(self) -> Sequence[Any]:
        """Figures of the last `align` on text that it held out, as `calque.runs.judged` takes them; none by default."""
        return ()

    def record(self) -> dict[str, Any]:
        """What the model card tells of the last `align`: `settings`, and what else there is."""
        return {"settings": self.settings()}
