"""Words with vectors, and pairs of them to begin from: a dictionary's, or words that are spelt alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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


def seed_pairs(
    dictionary: Dictionary | np.ndarray, source: Sequence[str], target: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, int]:
    """The rows of a dictionary's words.

    Args:
        dictionary: entries, of which one that comes twice counts twice; or pairs of rows already, int64 `[n_pairs, 2]`.
        source, target: the words whose rows they are, the most frequent first. A word that is not among them as it
            stands is looked up without regard to case, and its most frequent form counts: dictionaries are usually in
            lower case. The published code takes words as they stand only.

    Returns:
        pairs: int64 `[n_pairs, 2]`; all combinations where a word stands in several rows.
        entries: int64 `[n_pairs]`, number of the entry of each.
        left_out: entries of which a word is missing.

    Raises:
        SettingError: pairs of rows that are not there.
    """
    if isinstance(dictionary, np.ndarray):
        rows = np.asarray(dictionary, dtype=np.int64).reshape(-1, 2)
        for side, words in zip(rows.T, (source, target), strict=True):
            if len(side) and not 0 <= side.min() <= side.max() < len(words):
                raise SettingError(f"pairs name rows {side.min()} to {side.max()} of {len(words)}")
        return rows, np.arange(len(rows)), 0
    left, right = _Rows(source), _Rows(target)
    pairs, entries, left_out = [], [], 0
    for number, (a, b) in enumerate(zip(dictionary.source, dictionary.target, strict=True)):
        combined = [(i, j) for i in left.of(a) for j in right.of(b)]
        pairs += combined
        entries += [number] * len(combined)
        left_out += not combined
    return np.array(pairs, dtype=np.int64).reshape(-1, 2), np.array(entries, dtype=np.int64), left_out


class _Rows:
    """Where words stand in a list."""

    def __init__(self, words: Sequence[str]):
        self._rows: dict[str, list[int]] = {}
        self._forms: dict[str, str] = {}  # the first form of a word in lower case
        for row, word in enumerate(words):
            self._rows.setdefault(word, []).append(row)
            self._forms.setdefault(word.lower(), word)

    def of(self, word: str) -> Sequence[int]:
        return self._rows.get(word) or self._rows.get(self._forms.get(word.lower(), word), ())


def identical_words(source: Sequence[str], target: Sequence[str]) -> np.ndarray:
    """Words that are spelt alike in both languages, as a dictionary: names, numbers, loans (Artetxe et al. 2017;
    Søgaard et al. 2018).

    Returns:
        int64 `[n_pairs, 2]`, rows of both sides, in the order of `source`.
    """
    place = {word: row for row, word in reversed(list(enumerate(target)))}
    pairs = [(row, place[word]) for row, word in enumerate(source) if word in place]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def with_identical_words(dictionary: Dictionary, source: Sequence[str], target: Sequence[str]) -> Dictionary:
    """A dictionary and beside it every word that both languages have, as its own translation (Multi-sense, footnote 6).

    Args:
        dictionary: whose entries stay the first.
        source, target: the words of its languages.
    """
    known = set(zip(dictionary.source, dictionary.target, strict=True))
    both = dict.fromkeys(source[row] for row, _ in identical_words(source, target))
    alike = tuple(word for word in both if (word, word) not in known)
    return replace(dictionary, source=(*dictionary.source, *alike), target=(*dictionary.target, *alike))
