"""Translations of single words, from dictionaries and from the links of parallel text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calque.annotated import Dictionary
from calque.pairs import WordPairs
from calque.storage import from_numpy
from calque.text import ParallelCorpus, Sentences


@dataclass(frozen=True)
class Translations:
    """What the words of a language are in another.

    Attributes:
        words: the translations of each word, which is in lower case; all are single words, each is there once.
        several: entries left out because one of their sides has several words.
    """

    words: Mapping[str, tuple[str, ...]]
    several: int = 0

    @classmethod
    def of(cls, dictionary: Dictionary) -> Translations:
        """Those of a dictionary, from its first language into its second."""
        found: dict[str, dict[str, None]] = {}
        several = 0
        for source, target in zip(dictionary.source, dictionary.target, strict=True):
            if len(source.split()) > 1 or len(target.split()) > 1:
                several += 1
            else:
                found.setdefault(source.lower(), {})[target] = None
        return cls({word: tuple(forms) for word, forms in found.items()}, several)

    @classmethod
    def linked(
        cls, corpus: ParallelCorpus, pairs: WordPairs, *, most: int = 3, at_least: int = 2, share: float = 0.1
    ) -> Translations:
        """Those that words of the source are linked to most often.

        Forms that differ in case only are one translation, which is written as it is most often.

        Args:
            corpus, pairs: parallel text and its links.
            most: translations of a word.
            at_least: how often a translation must be linked to the word.
            share: how many of the word's links must be to it.
        """
        linked = zip(_forms(corpus.source, pairs.sentence, pairs.source),
                     _forms(corpus.target, pairs.sentence, pairs.target), strict=True)  # fmt: skip
        written: dict[tuple[str, str], Counter[str]] = {}
        for source, target in linked:
            written.setdefault((source.lower(), target.lower()), Counter())[target] += 1
        of_word: dict[str, list[tuple[int, str]]] = {}
        for (source, _), forms in written.items():
            form = min(forms, key=lambda form: (-forms[form], form))
            of_word.setdefault(source, []).append((-sum(forms.values()), form))
        found = {}
        for word, counted in of_word.items():
            least = max(at_least, -share * sum(n for n, _ in counted))
            if kept := tuple(form for n, form in sorted(counted)[:most] if -n >= least):
                found[word] = kept
        return cls(found)

    @classmethod
    def joined(cls, parts: Sequence[Translations]) -> Translations:
        """Those of several."""
        found: dict[str, dict[str, None]] = {}
        for part in parts:
            for word, forms in part.words.items():
                found.setdefault(word, {}).update(dict.fromkeys(forms))
        return cls({word: tuple(forms) for word, forms in found.items()}, sum(part.several for part in parts))

    def __len__(self) -> int:
        """How many words have a translation."""
        return len(self.words)

    def __getitem__(self, word: str) -> tuple[str, ...]:
        """The translations of a word as it is written; those of a word with a capital have one, too."""
        forms = self.words.get(word.lower(), ())
        return tuple(dict.fromkeys(form[:1].upper() + form[1:] for form in forms)) if word[:1].isupper() else forms


def _forms(sentences: Sentences, sentence, word) -> list[str]:
    """The words at some places."""
    words, offsets = sentences.flat()
    return words.take(from_numpy(offsets[sentence] + word)).to_pylist() if len(sentence) else []
