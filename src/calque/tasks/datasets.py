"""Annotated texts with name and language, and their gold answers as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch

from calque.corpora.by_name import name_of
from calque.corpora.languages import language_and_path
from calque.input_texts import Say
from calque.offsets import offsets_of, ranges
from calque.tasks.overlap import shared_texts, warn_of_overlap

if TYPE_CHECKING:
    from torch import Tensor

D = TypeVar("D")


@dataclass(frozen=True)
class Dataset(Generic[D]):
    """A data set with its language and name."""

    name: str
    lang: str
    data: D


def read_datasets(
    files: Sequence[str],
    read: Callable[[str, str], Any],
    most: int | None,
    known: dict[tuple[str, str, int | None], Any],
    say: Say,
) -> list[Dataset[Any]]:
    """Read files with their languages.

    Args:
        files: files with the language in their name (`panx.dev.de.tsv`) or before it (`de=dev.tsv`).
        most: number of evenly spaced texts of each file; None for all.
        known: data sets that have been read already, such as development text that is also a test set.

    Raises:
        SettingError: a file has no language.
    """
    datasets = []
    for file in files:
        lang, path = language_and_path(file)
        if (lang, path, most) not in known:
            data: Any = read(path, lang)
            n, repaired = len(data), getattr(data, "repaired", 0)
            chosen = spread_over(n, most)
            used = "" if chosen is None else f", of which {len(chosen):,} are used"
            say(f"{path}: {n:,} texts in {lang}{f', {repaired:,} tags repaired' if repaired else ''}{used}")
            known[lang, path, most] = data if chosen is None else data.take(chosen)
        datasets.append(Dataset(name_of(path), lang, known[lang, path, most]))
    return datasets


def spread_over(n: int, most: int | None) -> np.ndarray | None:
    """Return `most` evenly spaced numbers below `n`, None for all. Files are often sorted by label or source, so the first ones
    would be biased."""
    return None if most is None or most >= n else np.arange(most) * n // most


def warn_of_shared(test: Dataset[Any], trained: Sequence[Dataset[Any]]) -> None:
    """Warn if a test set overlaps with a training text of any language, in case a language is wrong."""
    for each in trained:
        tested, others = (getattr(text.data, "texts", None) or (text.data.sentences,) for text in (test, each))
        if len(tested) == len(others):
            warn_of_overlap(test.name, shared_texts(tested, others), each.name)


class Answers:
    """Gold answers of texts as arrays over words and over texts.

    Args:
        lengths: number of words of each text, int64 `[n_texts]`.
        words: arrays `[n_words]` by name.
        texts: arrays `[n_texts]` by name.
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
        """Concatenate several answers."""
        first = parts[0]
        return cls(
            np.concatenate([part.lengths for part in parts]),
            words={name: np.concatenate([part.words[name] for part in parts]) for name in first.words},
            texts={name: np.concatenate([part.texts[name] for part in parts]) for name in first.texts},
        )

    def of_words(self, name: str, numbers: np.ndarray) -> Tensor:
        """Return the answers for all words of the given texts, int64 `[W]`."""
        rows = ranges(self._starts[numbers], self.lengths[numbers])
        return torch.from_numpy(self.words[name][rows].astype(np.int64))

    def of_texts(self, name: str, numbers: np.ndarray) -> Tensor:
        """Return the answers for the given texts, int64 `[S]`."""
        return torch.from_numpy(self.texts[name][numbers].astype(np.int64))
