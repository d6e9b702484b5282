"""Training data of alignment methods: parallel text with word links, dictionaries with anchors, or
plain text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from calque.errors import SettingError
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from calque.anchors import Anchors
    from calque.annotated import Dictionary
    from calque.pairs import WordPairs


@dataclass(frozen=True)
class LinkedText:
    """Parallel texts and their word links.

    Attributes:
        corpora: one or more parallel texts, possibly in different languages.
        pairs: word links of each text; empty for methods that need no links.

    Raises:
        SettingError: there is no text, or the numbers of texts and of word links differ.
    """

    kind: ClassVar[str] = "parallel"

    corpora: tuple[ParallelCorpus, ...]
    pairs: tuple[WordPairs, ...] = ()

    def __post_init__(self):
        if not self.corpora:
            raise SettingError("at least one parallel text is needed, got none")
        if self.pairs and len(self.pairs) != len(self.corpora):
            texts, links = len(self.corpora), len(self.pairs)
            raise SettingError(
                f"each text must have word links, got {texts} texts but links for {links}"
            )

    @property
    def langs(self) -> list[str]:
        """Languages of the texts, in the order in which they first occur."""
        return list(dict.fromkeys(lang for corpus in self.corpora for lang in corpus.langs))

    @property
    def sides(self) -> list[Sentences]:
        """Both sides of every text."""
        return [side for corpus in self.corpora for side in (corpus.source, corpus.target)]

    def linked(self, pairs: Sequence[WordPairs]) -> LinkedText:
        """Return a copy with these word links, one object for each text."""
        return replace(self, pairs=tuple(pairs))

    def by_language(self) -> dict[str, list[Sentences]]:
        """Return the texts in each language."""
        texts: dict[str, list[Sentences]] = {}
        for corpus in self.corpora:
            for lang, side in zip(corpus.langs, (corpus.source, corpus.target), strict=True):
                texts.setdefault(lang, []).append(side)
        return texts


@dataclass(frozen=True)
class Dictionaries:
    """Anchors and, unless maps are fitted without supervision, dictionaries.

    Attributes:
        anchors: anchors of each language and layer, sorted by decreasing frequency.
        entries: dictionaries between two of these languages.
    """

    kind: ClassVar[str] = "dictionary"

    anchors: Mapping[str, Mapping[int, Anchors]]
    entries: tuple[Dictionary, ...] = ()

    @property
    def langs(self) -> list[str]:
        """Languages that have anchors."""
        return list(self.anchors)


@dataclass(frozen=True)
class PlainText:
    """Text in each language; the texts need not be translations of each other.

    Attributes:
        texts: sentences of each language.
    """

    kind: ClassVar[str] = "text"

    texts: Mapping[str, Sentences]

    @property
    def langs(self) -> list[str]:
        """Languages of the texts."""
        return list(self.texts)

    def by_language(self) -> dict[str, list[Sentences]]:
        """Return the texts in each language."""
        return {lang: [text] for lang, text in self.texts.items()}


TrainingData = LinkedText | Dictionaries | PlainText


def training_data(data: Any, pairs: Any = None) -> TrainingData:
    """Return the arguments of a Python user as training data.

    Args:
        data: training data, one or more parallel texts, sentences by language, or anchors by
            language and layer.
        pairs: word links of each parallel text, or dictionaries; one can be given without a list.

    Raises:
        SettingError: see `LinkedText`.
    """
    if isinstance(data, TrainingData):
        return data
    if pairs is None:
        supervision: tuple[Any, ...] = ()
    elif isinstance(pairs, list | tuple):
        supervision = tuple(pairs)
    else:
        supervision = (pairs,)
    if isinstance(data, ParallelCorpus):
        return LinkedText((data,), supervision)
    if not isinstance(data, Mapping):
        return LinkedText(tuple(data), supervision)
    if all(isinstance(each, Sentences) for each in data.values()):
        return PlainText(data)
    return Dictionaries(data, supervision)
