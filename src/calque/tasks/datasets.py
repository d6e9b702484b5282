"""Annotated data sets with their name and language, and arrays of gold answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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

    from calque.annotated import Labels

D = TypeVar("D")


@dataclass(frozen=True)
class Dataset(Generic[D]):
    """Data set with its name and language."""

    name: str
    lang: str
    data: D


def read_datasets(
    files: Sequence[str],
    read: Callable[[str, str], Any],
    max_texts: int | None,
    known: dict[tuple[str, str, int | None], Any],
    say: Say,
) -> list[Dataset[Any]]:
    """Read annotated files.

    Args:
        files: paths with the language in the file name (`panx.dev.de.tsv`) or before the path
            (`de=dev.tsv`).
        max_texts: maximum number of texts to use from each file, evenly spaced; default: all.
        known: cache of data sets, because a file may be used twice, for example for development and
            for testing.

    Raises:
        SettingError: the language of a file is unknown.
    """
    datasets = []
    for file in files:
        lang, path = language_and_path(file)
        key = lang, path, max_texts
        if key not in known:
            data: Any = read(path, lang)
            n, repaired = len(data), getattr(data, "repaired", 0)
            chosen = spread_over(n, max_texts)
            used = "" if chosen is None else f", of which {len(chosen):,} are used"
            say(f"{path}: {n:,} texts in {lang}{used}")
            if repaired:
                # Shown even with -q, because the scores count the changed spans.
                kinds = "invalid at their position, or slots that end inside a word"
                warnings.warn(
                    CalqueWarning(f"{path}: {repaired:,} tags repaired ({kinds})"), stacklevel=2
                )
            known[key] = data if chosen is None else data.take(chosen)
        datasets.append(Dataset(name_of(path), lang, known[key]))
    return datasets


def repaired_tags(
    train: Sequence[Dataset[Any]], dev: Sequence[Dataset[Any]], test: Dataset[Any]
) -> dict[str, int]:
    """Return the number of repaired tags in the training, development and test files, for the
    record of a score.
    """
    parts = {"train": train, "dev": dev, "test": [test]}
    return {part: sum(each.data.repaired for each in several) for part, several in parts.items()}


def number_or_name(column: str | None) -> int | str | None:
    """Convert a column number to an integer; return a column name or None unchanged."""
    return int(column) if column is not None and column.isdecimal() else column


def codes_of(
    labels: Labels,
    names: Sequence[str],
    each: Dataset[Any],
    lengths: np.ndarray,
    remedy: str,
    kind_of: Callable[[str], str] = str,
) -> np.ndarray:
    """Return the labels of a data set as indices into `names`.

    Args:
        lengths: number of labels in each text, int64 `[n_texts]`.
        remedy: second remedy that the error message suggests, with `{kind}` as a placeholder for
            the unknown label.
        kind_of: function that returns the name that `--rename` expects for a label.

    Raises:
        InputError: a label is not in `names`; the message contains the line number of the label.
    """
    codes = labels.among(names)
    wrong = np.flatnonzero(codes < 0)
    if len(wrong):
        text = int(np.searchsorted(np.cumsum(lengths), wrong[0], side="right"))
        line = None if each.data.lines is None else int(each.data.lines[text])
        label = labels[int(wrong[0])]
        kinds = sorted({kind_of(name) for name in names if name != "O"})
        shown = ", ".join(kinds[:12]) + (", …" if len(kinds) > 12 else "")
        fact = f"label {label!r} is not in the training text, which has labels {shown}"
        kind = kind_of(label)
        remedies = f"rename it (--rename {kind}=…), or {remedy.format(kind=kind)}"
        raise InputError(f"{fact}; {remedies}", path=each.data.path or each.name, line=line)
    return codes


def warn_of_shared(test: Dataset[Any], trained: Sequence[Dataset[Any]]) -> None:
    """Warn if a test set overlaps with a training text. Languages are ignored, because a declared
    language can be wrong.
    """
    for each in trained:
        tested, others = (
            getattr(text.data, "texts", None) or (text.data.sentences,) for text in (test, each)
        )
        if len(tested) == len(others):
            warn_of_overlap(test.name, shared_texts(tested, others), each.name)


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
        words, texts = (
            {name: np.concatenate([answers[name] for answers in several]) for name in several[0]}
            for several in ([part.words for part in parts], [part.texts for part in parts])
        )
        return cls(np.concatenate([part.lengths for part in parts]), words=words, texts=texts)

    def of_words(self, name: str, numbers: np.ndarray) -> Tensor:
        """Return the answers for all words of the given texts, int64 `[W]`."""
        rows = ranges(self._starts[numbers], self.lengths[numbers])
        return torch.from_numpy(self.words[name][rows].astype(np.int64))

    def of_texts(self, name: str, numbers: np.ndarray) -> Tensor:
        """Return the answers for the given texts, int64 `[S]`."""
        return torch.from_numpy(self.texts[name][numbers].astype(np.int64))
