"""Text with answers: tags of words, labels of texts and of spans, trees and senses, as arrays beside the sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calque.errors import InputError
from calque.offsets import offsets_of, ranges
from calque.text import Sentences


@dataclass(frozen=True)
class Labels:
    """Strings from a small set, as numbers.

    Attributes:
        codes: int32 `[n]`, which of `names` each is.
        names: every name once.
    """

    codes: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[str], names: Sequence[str] | None = None) -> Labels:
        """Number strings in alphabetical order, or as `names` has them.

        Raises:
            InputError: a value that is not among `names`.
        """
        values = list(values)
        names = tuple(sorted(set(values)) if names is None else names)
        number = {name: code for code, name in enumerate(names)}
        try:
            return cls(np.array([number[value] for value in values], dtype=np.int32), names)
        except KeyError as error:
            raise InputError(f"unknown label {error.args[0]!r}, expected one of {', '.join(names)}") from None

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> str:
        return self.names[self.codes[index]]

    def to_list(self) -> list[str]:
        return [self.names[code] for code in self.codes]

    def among(self, names: Sequence[str]) -> np.ndarray:
        """The same labels as numbers of another list of names, −1 where that has no such name: int32 `[n]`."""
        number = {name: code for code, name in enumerate(names)}
        return np.array([number.get(name, -1) for name in self.names], dtype=np.int32)[self.codes]

    def sorted(self) -> Labels:
        """The same with the names in alphabetical order."""
        names = tuple(sorted(self.names))
        return Labels(self.among(names), names)

    def take(self, rows: np.ndarray) -> Labels:
        return replace(self, codes=self.codes[rows])


@dataclass(frozen=True)
class TaggedText:
    """Sentences with a tag for each word (entities, slots, parts of speech).

    Attributes:
        sentences: the words.
        tags: of all words in a row, `[n_words]`. Spans are in the BIO scheme (IOB2), whatever the file had.
        intents: a label for each sentence, where the text has them, `[n_sentences]`.
        repaired: tags that were changed because no scheme allows them where they stood.
        path, lines: the file, and the line on which each sentence begins, int64 `[n_sentences]`, for messages.
    """

    sentences: Sentences
    tags: Labels
    intents: Labels | None = None
    repaired: int = 0
    path: str | None = None
    lines: np.ndarray | None = None

    def __post_init__(self):
        _same(int(self.sentences.lengths().sum()), len(self.tags), "words", "tags", self.path)
        if self.intents is not None:
            _same(len(self.sentences), len(self.intents), "sentences", "intents", self.path)

    def __len__(self) -> int:
        return len(self.sentences)

    def take(self, rows: np.ndarray) -> TaggedText:
        """Some of the sentences, by their numbers."""
        return replace(
            self, sentences=self.sentences.take(rows), tags=self.tags.take(_words_of(self.sentences, rows)),
            intents=None if self.intents is None else self.intents.take(rows), lines=_taken(self.lines, rows),
        )  # fmt: skip


@dataclass(frozen=True)
class LabelledText:
    """Texts, or pairs of texts, with a label each (sentiment, inference).

    Attributes:
        texts: one column of texts, or two, as words.
        labels: `[n_texts]`.
        path, lines: the file and the line of each text, for messages.
    """

    texts: tuple[Sentences, ...]
    labels: Labels
    path: str | None = None
    lines: np.ndarray | None = None

    def __post_init__(self):
        for column in self.texts:
            _same(len(column), len(self.labels), "texts", "labels", self.path)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> LabelledText:
        """Some of the texts, by their numbers."""
        texts = tuple(column.take(rows) for column in self.texts)
        return replace(self, texts=texts, labels=self.labels.take(rows), lines=_taken(self.lines, rows))


@dataclass(frozen=True)
class Treebank:
    """Sentences with dependency trees.

    Attributes:
        sentences: the words.
        upos: universal part of speech of each word, `[n_words]`.
        heads: int32 `[n_words]`: 0 for the root, else which word of the sentence, from 1, is the head.
        relations: label of the arc to the head, `[n_words]`.
        path, lines: the file, and the line on which each sentence begins, for messages.
    """

    sentences: Sentences
    upos: Labels
    heads: np.ndarray
    relations: Labels
    path: str | None = None
    lines: np.ndarray | None = None

    def __post_init__(self):
        n_words = int(self.sentences.lengths().sum())
        for name, values in (("tags", self.upos), ("heads", self.heads), ("relations", self.relations)):
            _same(n_words, len(values), "words", name, self.path)

    def __len__(self) -> int:
        return len(self.sentences)

    def take(self, rows: np.ndarray) -> Treebank:
        """Some of the sentences, by their numbers."""
        words = _words_of(self.sentences, rows)
        return replace(
            self, sentences=self.sentences.take(rows), upos=self.upos.take(words), heads=self.heads[words],
            relations=self.relations.take(words), lines=_taken(self.lines, rows),
        )  # fmt: skip


@dataclass(frozen=True)
class ProbeText:
    """Sentences with labelled spans, or labelled pairs of spans: what edge probing asks (Tenney et al. 2019b, §2).

    Attributes:
        sentences: the words.
        offsets: int64 `[n_sentences + 1]`: the targets of sentence i are those from `offsets[i]` to `offsets[i + 1]`.
        spans: int32 `[n_targets, 1 or 2, 2]`: of each span of a target its first word and the one behind its last, counted
            in the sentence from 0.
        labels: those of all targets in a row, `[n_labels]`.
        label_offsets: int64 `[n_targets + 1]`: which of them are those of a target; it may have none, one or several.
        probe: of what kind the labels are, such as "pos".
        path, lines: the file, and the line on which each sentence begins, for messages.

    Raises:
        InputError: numbers that do not fit each other.
    """

    sentences: Sentences
    offsets: np.ndarray
    spans: np.ndarray
    labels: Labels
    label_offsets: np.ndarray
    probe: str
    path: str | None = None
    lines: np.ndarray | None = None

    def __post_init__(self):
        _same(len(self.sentences) + 1, len(self.offsets), "sentences and an end", "offsets", self.path)
        _same(int(self.offsets[-1]), len(self.spans), "targets", "spans", self.path)
        _same(len(self.spans) + 1, len(self.label_offsets), "targets and an end", "offsets of labels", self.path)
        _same(int(self.label_offsets[-1]), len(self.labels), "labels of targets", "labels", self.path)

    def __len__(self) -> int:
        return len(self.sentences)

    def owners(self) -> np.ndarray:
        """Which sentence each target is of, int64 `[n_targets]`."""
        return np.repeat(np.arange(len(self.sentences)), np.diff(self.offsets))

    def take(self, rows: np.ndarray) -> ProbeText:
        """Some of the sentences, by their numbers."""
        counts = np.diff(self.offsets)[rows]
        targets = ranges(self.offsets[:-1][rows], counts)
        label_counts = np.diff(self.label_offsets)[targets]
        return replace(
            self, sentences=self.sentences.take(rows), offsets=offsets_of(counts), spans=self.spans[targets],
            labels=self.labels.take(ranges(self.label_offsets[:-1][targets], label_counts)),
            label_offsets=offsets_of(label_counts), lines=_taken(self.lines, rows),
        )  # fmt: skip


@dataclass(frozen=True)
class Dictionary:
    """Pairs of words that translate each other, in the order of the file; a word may stand in several.

    Attributes:
        source, target: `[n_entries]`.
        langs: the languages of the two sides.
        path: the file.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    langs: tuple[str, str]
    path: str | None = None

    def __post_init__(self):
        _same(len(self.source), len(self.target), "source words", "target words", self.path)

    def __len__(self) -> int:
        return len(self.source)


def _taken(lines: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if lines is None else lines[rows]


def _words_of(sentences: Sentences, rows: np.ndarray) -> np.ndarray:
    """Numbers of the words of some sentences, in order."""
    lengths = sentences.lengths()
    return ranges(offsets_of(lengths)[:-1][rows], lengths[rows])


def _same(expected: int, got: int, unit: str, what: str, path: str | None) -> None:
    if expected != got:
        raise InputError(f"{got:,} {what} for {expected:,} {unit}", path=path)
