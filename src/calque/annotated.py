"""Data classes for text with word tags, text labels, dependency trees or labelled spans, and for
bilingual dictionaries.
"""

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
    """Labels stored as integers: `codes`, int32 `[n]`, contains indices into `names`, the tuple of
    distinct labels.
    """

    codes: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[str]) -> Labels:
        """Build `Labels` from strings; `names` contains the distinct strings in sorted order."""
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
        """Return each label as an index into `names`, int32 `[n]`; a label that is not in `names`
        becomes −1.
        """
        number = {name: code for code, name in enumerate(names)}
        return np.array([number.get(name, -1) for name in self.names], dtype=np.int32)[self.codes]

    def sorted(self) -> Labels:
        """Return the same labels, with `names` in alphabetical order."""
        names = tuple(sorted(self.names))
        return Labels(self.among(names), names)

    def take(self, rows: np.ndarray) -> Labels:
        return replace(self, codes=self.codes[rows])


@dataclass(frozen=True)
class _AnnotatedSentences:
    """Base class for annotated sentences. Subclasses define `lines`, the line number of each
    sentence in its file.
    """

    sentences: Sentences

    def __len__(self) -> int:
        return len(self.sentences)

    def _taken(self, rows: np.ndarray, **annotations: Any) -> Self:
        """Return the sentences at the given indices; `annotations` maps field names to the
        annotations of these sentences.
        """
        lines = getattr(self, "lines")  # noqa: B009 (subclasses define this field)
        annotations["lines"] = None if lines is None else lines[rows]
        return replace(self, sentences=self.sentences.take(rows), **annotations)

    def _words(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices of all words in the sentences at `rows`, in order."""
        lengths = self.sentences.lengths()
        return ranges(offsets_of(lengths)[:-1][rows], lengths[rows])


@dataclass(frozen=True)
class TaggedText(_AnnotatedSentences):
    """Sentences with a tag for each word (named entities, slots, parts of speech).

    Attributes:
        tags: tag of each word, `[n_words]`; spans are encoded in the BIO scheme (IOB2).
        intents: intent of each sentence, `[n_sentences]`, or None if there are no intents.
        repaired: number of tags or spans corrected by the reader: invalid tags, or spans that did
            not match word boundaries.
        path, lines: path of the file and line number of each sentence, int64 `[n_sentences]`, for
            use in messages.
    """

    tags: Labels
    intents: Labels | None = None
    repaired: int = 0
    path: str | None = None
    lines: np.ndarray | None = None

    def __post_init__(self):
        n_words = int(self.sentences.lengths().sum())
        _check(n_words, len(self.tags), "one per word", "tags", self.path)
        if self.intents is not None:
            _check(len(self.sentences), len(self.intents), "one per sentence", "intents", self.path)

    def take(self, rows: np.ndarray) -> TaggedText:
        """Return the sentences at the given indices."""
        intents = None if self.intents is None else self.intents.take(rows)
        return self._taken(rows, tags=self.tags.take(self._words(rows)), intents=intents)


@dataclass(frozen=True)
class LabelledText:
    """Texts, or pairs of texts, with one label each (sentiment, natural language inference).

    Attributes:
        texts: one column of texts, or two columns for pairs of texts.
        labels: label of each text or pair, `[n_texts]`.
        path, lines: path of the file and line number of each text, for use in messages.
    """

    texts: tuple[Sentences, ...]
    labels: Labels
    path: str | None = None
    lines: np.ndarray | None = None

    def __post_init__(self):
        # Both texts of a pair share one label.
        for column in self.texts:
            _check(len(column), len(self.labels), "one per text", "labels", self.path)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> LabelledText:
        """Return the texts at the given indices."""
        texts = tuple(column.take(rows) for column in self.texts)
        lines = None if self.lines is None else self.lines[rows]
        return replace(self, texts=texts, labels=self.labels.take(rows), lines=lines)


@dataclass(frozen=True)
class Treebank(_AnnotatedSentences):
    """Sentences with dependency trees.

    Attributes:
        upos: universal part-of-speech tag of each word, `[n_words]`.
        heads: 1-based position of each word's head in the sentence, or 0 for the root, int32
            `[n_words]`.
        relations: dependency relation of each word to its head, `[n_words]`.
        path, lines: path of the file and line number of each sentence, for use in messages.
    """

    upos: Labels
    heads: np.ndarray
    relations: Labels
    path: str | None = None
    lines: np.ndarray | None = None

    def __post_init__(self):
        n_words = int(self.sentences.lengths().sum())
        for name, values in (
            ("tags", self.upos),
            ("heads", self.heads),
            ("relations", self.relations),
        ):
            _check(n_words, len(values), "one per word", name, self.path)

    def take(self, rows: np.ndarray) -> Treebank:
        """Return the sentences at the given indices."""
        words = self._words(rows)
        return self._taken(
            rows,
            upos=self.upos.take(words),
            heads=self.heads[words],
            relations=self.relations.take(words),
        )


@dataclass(frozen=True)
class ProbeText(_AnnotatedSentences):
    """Sentences with labelled spans or labelled pairs of spans, for edge probing (Tenney et al.
    2019b, §2).

    Attributes:
        offsets: int64 `[n_sentences + 1]`; the targets of sentence i have the indices
            `offsets[i]:offsets[i + 1]`.
        spans: first word and end (exclusive) of each target's one or two spans, int32 `[n_targets,
            1 or 2, 2]`.
        labels: labels of all targets in order, `[n_labels]`.
        label_offsets: offsets of each target's labels in `labels`, int64 `[n_targets + 1]`; a
            target can have no labels.
        probe: name of the probing task, such as "pos".
        path, lines: path of the file and line number of each sentence, for use in messages.
        repaired: number of tags corrected by the reader, see `TaggedText`.

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
    repaired: int = 0

    def __post_init__(self):
        # The arrays are flat, so wrong lengths would silently move annotations to other sentences.
        n_targets, n_labels = int(self.offsets[-1]), int(self.label_offsets[-1])
        unit = "one per sentence, plus the end"
        _check(len(self.sentences) + 1, len(self.offsets), unit, "offsets", self.path)
        unit = "the value of the last offset"
        _check(n_targets, len(self.spans), unit, "spans", self.path)
        unit = "one per target, plus the end"
        _check(len(self.spans) + 1, len(self.label_offsets), unit, "label offsets", self.path)
        unit = "the value of the last label offset"
        _check(n_labels, len(self.labels), unit, "labels", self.path)

    def owners(self) -> np.ndarray:
        """Return the index of the sentence that contains each target, int64 `[n_targets]`."""
        return np.repeat(np.arange(len(self.sentences)), np.diff(self.offsets))

    def take(self, rows: np.ndarray) -> ProbeText:
        """Return the sentences at the given indices."""
        counts = np.diff(self.offsets)[rows]
        # Sentences contain targets, and targets contain labels, so indices are expanded twice.
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
    """Bilingual dictionary: pairs of a word and its translation, in file order. A word can have
    several translations.

    Attributes:
        source, target: the words and their translations, `[n_entries]` each.
        langs: languages of `source` and `target`.
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
