"""Annotated data sets with their name and language, and arrays of gold answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np
import torch

from calque.corpora.by_name import name_of
from calque.corpora.languages import language_and_path
from calque.corpora.spread import spread_over
from calque.errors import CalqueWarning, InputError
from calque.input_texts import Say
from calque.offsets import offsets_of, ranges
from calque.tasks.overlap import shared_texts, warn_of_overlap

if TYPE_CHECKING:
    from torch import Tensor

    from calque.annotated import Labels, ProbeText, TaggedText
    from calque.text import Sentences


class Data(Protocol):
    """Annotated texts, such as `calque.annotated.TaggedText`."""

    def __len__(self) -> int: ...

    def take(self, rows: np.ndarray, /) -> Self: ...


class LocatedData(Data, Protocol):
    """Annotated texts whose places in a file are known, for use in messages."""

    @property
    def path(self) -> str | None: ...

    @property
    def lines(self) -> np.ndarray | None: ...


D = TypeVar("D", bound=Data)
D_co = TypeVar("D_co", bound=Data, covariant=True)


@dataclass(frozen=True)
class Dataset(Generic[D_co]):
    """Data set with its name and language."""

    name: str
    lang: str
    data: D_co


def read_datasets(
    files: Sequence[str],
    *,
    read: Callable[[str, str], D],
    max_texts: int | None,
    cache: dict[tuple[str, str, int | None], D],
    say: Say,
) -> list[Dataset[D]]:
    """Read annotated files.

    Args:
        files: paths with the language in the file name (`panx.dev.de.tsv`) or before the path
            (`de=dev.tsv`).
        read: function that reads the data from a path and its language.
        max_texts: maximum number of texts to use from each file, evenly spaced; default: all.
        cache: data sets that were already read, because a file may be used twice, for example for
            development and for testing.

    Raises:
        SettingError: the language of a file is unknown.
    """
    datasets = []
    for file in files:
        lang, path = language_and_path(file)
        key = lang, path, max_texts
        if key not in cache:
            data = read(path, lang)
            chosen = spread_over(len(data), max_texts)
            used = "" if chosen is None else f", of which {len(chosen):,} are used"
            say(f"{path}: {len(data):,} texts in {lang}{used}")
            _warn_of_repaired_tags(path, data)
            cache[key] = data if chosen is None else data.take(chosen)
        datasets.append(Dataset(name_of(path), lang, cache[key]))
    return datasets


def _warn_of_repaired_tags(path: str, data: Data) -> None:
    """Warn if a reader repaired tags. The warning is shown even with -q, because the scores count
    the changed spans.
    """
    repaired = getattr(data, "repaired", 0)
    if repaired:
        causes = "invalid at their position, or slots that end inside a word"
        message = f"{path}: {repaired:,} tags repaired ({causes})"
        warnings.warn(CalqueWarning(message), stacklevel=3)


def repaired_tags(
    train: Sequence[Dataset[TaggedText | ProbeText]],
    dev: Sequence[Dataset[TaggedText | ProbeText]],
    test: Dataset[TaggedText | ProbeText],
) -> dict[str, int]:
    """Return the number of repaired tags in the training, development and test files, for the
    record of a score.
    """

    def total(datasets: Sequence[Dataset[TaggedText | ProbeText]]) -> int:
        return sum(dataset.data.repaired for dataset in datasets)

    return {"train": total(train), "dev": total(dev), "test": test.data.repaired}


def number_or_name(column: str | None) -> int | str | None:
    """Convert a column number to an integer; return a column name or None unchanged."""
    if column is not None and column.isdecimal():
        return int(column)
    return column


def label_names(labels: Iterable[Labels]) -> set[str]:
    """Return the names of all labels of several data sets."""
    return set().union(*(labels_of_text.names for labels_of_text in labels))


def codes_of(
    labels: Labels,
    names: Sequence[str],
    dataset: Dataset[LocatedData],
    lengths: np.ndarray,
    remedy: str,
    name_in_rename: Callable[[str], str] = str,
) -> np.ndarray:
    """Return the labels of a data set as indices into `names`.

    Args:
        lengths: number of labels in each text, int64 `[n_texts]`.
        remedy: second remedy that the error message suggests, with `{kind}` as a placeholder for
            the unknown label.
        name_in_rename: function that returns the name that `--rename` expects for a label.

    Raises:
        InputError: a label is not in `names`; the message contains the line number of the label.
    """
    codes = labels.among(names)
    unknown = np.flatnonzero(codes < 0)
    if not len(unknown):
        return codes
    label = labels[int(unknown[0])]
    # `labels` is flat, so the text of a label follows from the number of labels per text.
    text = int(np.searchsorted(np.cumsum(lengths), unknown[0], side="right"))
    lines = dataset.data.lines
    line = None if lines is None else int(lines[text])
    # B-PER and I-PER are one name for `--rename`.
    known = sorted({name_in_rename(name) for name in names if name != "O"})
    shown = ", ".join(known[:12])
    if len(known) > 12:
        shown += ", …"
    fact = f"label {label!r} is not in the training text, which has labels {shown}"
    name = name_in_rename(label)
    remedies = f"rename it (--rename {name}=…), or {remedy.format(kind=name)}"
    raise InputError(f"{fact}; {remedies}", path=dataset.data.path or dataset.name, line=line)


def warn_of_shared(test: Dataset[Data], trained: Sequence[Dataset[Data]]) -> None:
    """Warn if a test set overlaps with a training text. Languages are ignored, because a declared
    language can be wrong.
    """
    test_columns = _text_columns(test)
    for train in trained:
        train_columns = _text_columns(train)
        # Texts with different numbers of columns cannot be equal.
        if len(test_columns) == len(train_columns):
            warn_of_overlap(test.name, shared_texts(test_columns, train_columns), train.name)


def _text_columns(dataset: Dataset[Data]) -> Sequence[Sentences]:
    """Return the columns of texts of a data set, such as premises and hypotheses."""
    # Data with one column has the attribute `sentences`, other data has `texts`.
    data: Any = dataset.data
    return getattr(data, "texts", None) or (data.sentences,)


class Answers:
    """Gold answers for the words and for the texts of a data set, stored in named arrays.

    Args:
        lengths: number of words in each text, int64 `[n_texts]`.
        words: mapping from names to arrays with one answer per word, `[n_words]`.
        texts: mapping from names to arrays with one answer per text, `[n_texts]`.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        *,
        words: Mapping[str, np.ndarray] | None = None,
        texts: Mapping[str, np.ndarray] | None = None,
    ):
        self.lengths, self.words, self.texts = lengths, dict(words or {}), dict(texts or {})
        self._starts = offsets_of(lengths)[:-1]

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """Concatenate the answers of several data sets."""

        def concatenated(arrays: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
            return {name: np.concatenate([part[name] for part in arrays]) for name in arrays[0]}

        return cls(
            np.concatenate([part.lengths for part in parts]),
            words=concatenated([part.words for part in parts]),
            texts=concatenated([part.texts for part in parts]),
        )

    def of_words(self, name: str, numbers: np.ndarray) -> Tensor:
        """Return the answers for all words of the given texts, int64 `[W]`."""
        rows = ranges(self._starts[numbers], self.lengths[numbers])
        return torch.from_numpy(self.words[name][rows].astype(np.int64))

    def of_texts(self, name: str, numbers: np.ndarray) -> Tensor:
        """Return the answers for the given texts, int64 `[S]`."""
        return torch.from_numpy(self.texts[name][numbers].astype(np.int64))
