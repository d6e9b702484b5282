"""Annotated text: sentences with arrays of word tags, text labels, dependency trees or labelled spans; and dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from calque.errors import InputError
from calque.offsets import offsets_of, ranges
from calque.text import Sentences


@dataclass(frozen=True)
class Labels:
    """Labels stored as codes, int32 `[n]`, which are indices into the distinct names."""

    codes: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[str]) -> Labels:
        """Build from strings; `names` are the distinct strings in sorted order."""
        values = list(values)
        names = tuple(sorted(set(values)))
        number = {name: code for code, name in enumerate(names)}
        return cls(np.array([number[value] for value in values], dtype=np.int32), names)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> str:
        return self.names[self.codes[index]]

    def to_list(self) -> list[str]:
        return [self.names[code] for code in self.codes]

    def among(self, names: Sequence[str]) -> np.ndarray:
        """Return codes that are indices into `names`, int32 `[n]`; labels that `names` does not contain get −1."""
        number = {name: code for code, name in enumerate(names)}
        return np.array([number.get(name, -1) for name in self.names], dtype=np.int32)[self.codes]

    def sorted(self) -> Labels:
        """Return the same labels with `names` in alphabetical order."""
        names = tuple(sorted(self.names))
        return Labels(self.among(names), names)

    def take(self, rows: np.ndarray) -> Labels:
        return replace(self, codes=self.codes[rows])


@dataclass(frozen=True)
class _AnnotatedSentences:
    """Base class of annotated sentences. Subclasses define `lines`, the line number of each sentence in the file."""

    sentences: Sentences

    def __len__(self) -> int:
        return len(self.sentences)

    def _taken(self, rows: np.ndarray, **parts: Any) -> Self:
        """Return the sentences with the given indices; `parts` is the annotation of these sentences."""
        lines = getattr(self, "lines")  # noqa: B009 (a field of subclasses)
        return replace(
            self, sentences=self.sentences.take(rows), **{"lines": None if lines is None else lines[rows]}, **parts
        )

    def _words(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices of the words of the given sentences, in order."""
        lengths = self.sentences.lengths()
        return ranges(offsets_of(lengths)[:-1][rows], lengths[rows])


@dataclass(frozen=True)
class TaggedText(_AnnotatedSentences):
    """Sentences with a tag for each word (entities, slots, parts of speech).

    Attributes:
        tags: tags of all words, `[n_words]`. Spans are converted to BIO (IOB2).
        intents: label of each sentence `[n_sentences]`, or None.
        repaired: number of tags that were changed because no scheme allows the tags at their position.
        path, lines: path of the file, and line number of each sentence, int64 `[n_sentences]`, for messages.
    """

    tags: Labels
    intents: Labels | None = None
    repaired: int = 0
    path: str | None = None
    lines: np.ndarray | None = None

    def __post_init__(self):
        _check(int(self.sentences.lengths().sum()), len(self.tags), "one per word", "tags", self.path)
        if self.intents is not None:
            _check(len(self.sentences), len(self.intents), "one per sentence", "intents", self.path)

    def take(self, rows: np.ndarray) -> TaggedText:
        """Return the sentences with the given indices."""
        intents = None if self.intents is None else self.intents.take(rows)
        return self._taken(rows, tags=self.tags.take(self._words(rows)), intents=intents)


@dataclass(frozen=True)
class LabelledText:
    """Texts or pairs of texts with one label each (sentiment, inference).

    Attributes:
        texts: one or two columns of texts.
        labels: label of each text, `[n_texts]`.
        path, lines: path of the file, and line number of each text, for messages.
    """

    texts: tuple[Sentences, ...]
    labels: Labels
    path: str | None = None
    lines: np.ndarray | None = None

    def __post_init__(self):
        for column in self.texts:
            _check(len(column), len(self.labels), "one per text", "labels", self.path)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> LabelledText:
        """Return the texts with the given indices."""
        texts = tuple(column.take(rows) for column in self.texts)
        lines = None if self.lines is None else self.lines[rows]
        return replace(self, texts=texts, labels=self.labels.take(rows), lines=lines)


@dataclass(frozen=True)
class Treebank(_AnnotatedSentences):
    """Sentences with dependency trees.

    Attributes:
        upos: universal part of speech of each word, `[n_words]`.
        heads: 1-based position of the head of each word in its sentence, 0 for the root, int32 `[n_words]`.
        relations: label of the arc to the head, `[n_words]`.
        path, lines: path of the file, and line number of each sentence, for messages.
    """

    upos: Labels
    heads: np.ndarray
    relations: Labels
    path: str | None = None
    lines: np.ndarray | None = None

    def __post_init__(self):
        n_words = int(self.sentences.lengths().sum())
        for name, values in (("tags", self.upos), ("heads", self.heads), ("relations", self.relations)):
            _check(n_words, len(values), "one per word", name, self.path)

    def take(self, rows: np.ndarray) -> Treebank:
        """Return the sentences with the given indices."""
        words = self._words(rows)
        return self._taken(
            rows, upos=self.upos.take(words), heads=self.heads[words], relations=self.relations.take(words)
        )


@dataclass(frozen=True)
class ProbeText(_AnnotatedSentences):
    """Sentences with labelled spans or labelled pairs of spans, for edge probing (Tenney et al. 2019b, §2).

    Attributes:
        offsets: int64 `[n_sentences + 1]`; sentence i has the targets `offsets[i]:offsets[i + 1]`.
        spans: first word and end (exclusive) of each span of a target, int32 `[n_targets, 1 or 2, 2]`.
        labels: labels of all targets, `[n_labels]`.
        label_offsets: int64 `[n_targets + 1]`; target i has the labels `label_offsets[i]:label_offsets[i + 1]`, possibly none.
        probe: name of the probing task, such as "pos".
        path, lines: path of the file, and line number of each sentence, for messages.

    Raises:
        InputError: the lengths of the arrays are inconsistent.
    """

    offsets: np.ndarray
    spans: np.ndarray
    labels: Labels
    label_offsets: np.ndarray
    probe: str
    path: str | None = None
    lines: np.ndarray | None = None

    def __post_init__(self):
        _check(len(self.sentences) + 1, len(self.offsets), "one per sentence, and the end", "offsets", self.path)
        _check(int(self.offsets[-1]), len(self.spans), "the last offset", "spans", self.path)
        _check(len(self.spans) + 1, len(self.label_offsets), "one per target, and the end", "label offsets", self.path)
        _check(int(self.label_offsets[-1]), len(self.labels), "the last label offset", "labels", self.path)

    def owners(self) -> np.ndarray:
        """Return the sentence of each target, int64 `[n_targets]`."""
        return np.repeat(np.arange(len(self.sentences)), np.diff(self.offsets))

    def take(self, rows: np.ndarray) -> ProbeText:
        """Return the sentences with the given indices."""
        counts = np.diff(self.offsets)[rows]
        targets = ranges(self.offsets[:-1][rows], counts)
        label_counts = np.diff(self.label_offsets)[targets]
        labels = self.labels.take(ranges(self.label_offsets[:-1][targets], label_counts))
        return self._taken(
            rows,
            offsets=offsets_of(counts),
            spans=self.spans[targets],
            labels=labels,
            label_offsets=offsets_of(label_counts),
        )


@dataclass(frozen=True)
class Dictionary:
    """Pairs of words and translations in the order of the file; a word can have several translations.

    Attributes:
        source, target: words of each side, `[n_entries]`.
        langs: languages of the two sides.
        path: path of the file.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    langs: tuple[str, str]
    path: str | None = None

    def __post_init__(self):
        _check(len(self.source), len(self.target), "one per source word", "target words", self.path)

    def __len__(self) -> int:
        return len(self.source)


def _check(expected: int, got: int, unit: str, what: str, path: str | None) -> None:
    if expected != got:
        raise InputError(f"expected {expected:,} {what} ({unit}), got {got:,}", path=path)
