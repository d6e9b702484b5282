"""Words with vectors, and pairs of them to begin from: a dictionary's, or words that are written alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from calque.annotated import Dictionary
from calque.errors import SettingError


class WordVectors(Protocol):
    """Words with a vector each, the most frequent first: `calque.anchors.Anchors` is such a thing."""

    @property
    def words(self) -> Sequence[str]:
        """`[n]`."""
        ...

    @property
    def vectors(self) -> np.ndarray:
        """`[n, dim]`."""
        ...


@dataclass(frozen=True)
class WordList:
    """The plainest `WordVectors`."""

    words: Sequence[str]
    vectors: np.ndarray


def rows_of(
    dictionary: Dictionary | np.ndarray, source: Sequence[str], target: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, int]:
    """Pairs of rows, the entry that each comes from, and how many entries have none; `seed_pairs` of a dictionary."""
    if isinstance(dictionary, np.ndarray):
        pairs = np.asarray(dictionary, dtype=np.int64).reshape(-1, 2)
        for side, words in zip(pairs.T, (source, target), strict=True):
            if len(side) and not 0 <= side.min() <= side.max() < len(words):
                raise SettingError(f"pairs name rows {side.min()} to {side.max()} of {len(words)}")
        return pairs, np.arange(len(pairs)), 0
    return seed_pairs(dictionary, source, target)


def seed_pairs(
    dictionary: Dictionary, source: Sequence[str], target: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, int]:
    """The rows of a dictionary's words.

    Args:
        dictionary: entries; one that comes twice counts twice.
        source, target: the words whose rows they are. Words are looked up as they stand, case and all.

    Returns:
        pairs: int64 `[n_pairs, 2]`; all combinations where a word stands in several rows.
        entries: int64 `[n_pairs]`, number of the entry of each.
        left_out: entries of which a word is missing.
    """
    places: list[dict[str, list[int]]] = [{}, {}]
    for found, words in zip(places, (source, target), strict=True):
        for row, word in enumerate(words):
            found.setdefault(word, []).append(row)
    pairs, entries, left_out = [], [], 0
    for number, (a, b) in enumerate(zip(dictionary.source, dictionary.target, strict=True)):
        rows, columns = places[0].get(a, ()), places[1].get(b, ())
        combined = [(i, j) for i in rows for j in columns]
        pairs += combined
        entries += [number] * len(combined)
        left_out += not combined
    return np.array(pairs, dtype=np.int64).reshape(-1, 2), np.array(entries, dtype=np.int64), left_out


def identical_words(
    source: Sequence[str], target: Sequence[str], *, numerals: bool = False, letters: int = 1
) -> np.ndarray:
    """Words that are written alike in both languages, as a dictionary: names, numbers, loans (Artetxe et al. 2017;
    Søgaard et al. 2018).

    Args:
        source, target: the words.
        numerals: only those of digits.
        letters: shortest word.

    Returns:
        int64 `[n_pairs, 2]`, in the order of `source`.
    """
    place = {word: row for row, word in reversed(list(enumerate(target)))}
    pairs = [
        (row, place[word])
        for row, word in enumerate(source)
        if word in place and len(word) >= letters and (word.isdigit() or not numerals)
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
