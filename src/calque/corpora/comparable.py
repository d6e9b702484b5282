"""Texts in two languages that are no translations, with the pairs of sentences that are: as BUCC has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike, fspath

import numpy as np

from calque.corpora.formats import moses_files
from calque.corpora.lines import Flaw, find_packed, read_lines
from calque.errors import InputError
from calque.segment import splitter
from calque.text import Sentences


@dataclass(frozen=True)
class Comparable:
    """Two texts, and which sentences translate each other.

    Attributes:
        source, target: the sentences.
        gold: int64 `[n_pairs, 2]`, numbers of a source and a target sentence.
        path: where they were read from, for messages.
    """

    source: Sentences
    target: Sentences
    gold: np.ndarray
    path: str = ""

    @property
    def langs(self) -> tuple[str, str]:
        """Of source and target."""
        return self.source.lang, self.target.lang


def gold_file(path: str | PathLike[str]) -> str | None:
    """The gold pairs beside texts of this prefix, if there are any."""
    found = None if os.path.isfile(path) else find_packed(f"{fspath(path)}.gold")
    return None if found is None else str(found)


def read_comparable(
    path: str | PathLike[str],
    *,
    langs: tuple[str, str],
    gold: str | PathLike[str] | None = None,
    pretokenized: bool = False,
    limit: int | None = None,
) -> Comparable:
    """Read the layout of BUCC's shared task: `PREFIX.de` and `PREFIX.en` with lines `id⇥sentence`, and `PREFIX.gold` with lines
    `id⇥id`. Files may be packed.

    Args:
        langs: source and target; the columns of the gold pairs may stand the other way round.
        gold: the file of gold pairs, if it has another name.
        pretokenized: words are what stands between spaces.
        limit: keep only so many sentences of each text, and the gold pairs of those.

    Raises:
        InputError: a file is missing; a line has no id, or one that was there before; a gold pair has an id that no sentence has.
    """
    files, gold = moses_files(path, langs), gold or gold_file(path)
    if len(files) < 2 or gold is None:
        missing = "gold pairs" if len(files) == 2 else f"text in {langs[0]} and {langs[1]}"
        name = fspath(path)
        raise InputError(f"no {missing}, expected {name}.{langs[0]}, {name}.{langs[1]} and {name}.gold", path=path)
    numbers, sides = [], []
    for file, lang in zip(files, langs, strict=True):
        split, ids, words = splitter(lang, pretokenized=pretokenized), {}, []
        for line, (name, text) in _two_columns(file):
            if name in ids:
                raise InputError(f"the id {name!r} is that of sentence {ids[name] + 1}, too", path=file, line=line)
            ids[name] = len(ids)
            if limit is None or len(words) < limit:
                words.append(split(text))
        numbers.append(ids)
        sides.append(Sentences.of(words, lang))
    pairs = np.array(_gold(gold, numbers[0], numbers[1]), dtype=np.int64)
    if limit is not None:
        pairs = pairs[(pairs < limit).all(axis=1)]
        if not len(pairs):
            raise InputError(f"no gold pair within the first {limit:,} sentences of both texts", path=gold)
    return Comparable(sides[0], sides[1], pairs, fspath(path))


def _gold(path: str | PathLike[str], source: dict[str, int], target: dict[str, int]) -> list[tuple[int, int]]:
    """Numbers of the sentences of each gold pair, each pair once."""
    pairs: dict[tuple[int, int], None] = {}
    for line, (one, other) in _two_columns(path):
        for a, b in ((one, other), (other, one)):
            if a in source and b in target:
                pairs[source[a], target[b]] = None
                break
        else:
            raise InputError(f"no sentences of ids {one!r} and {other!r}, one in each text", path=path, line=line)
    if not pairs:
        raise InputError("no pair, expected the ids of two sentences on a line", path=path)
    return list(pairs)


def _two_columns(path: str | PathLike[str]) -> Iterator[tuple[int, tuple[str, str]]]:
    """Lines of two columns, with their numbers."""
    for number, line in enumerate(read_lines(path), 1):
        if isinstance(line, Flaw):
            raise InputError(line.fact, path=path, line=number)
        first, tab, second = line.partition("\t")
        if not tab and line.strip():
            raise InputError(
                "one column, expected an id, a tab and a sentence (gold pairs: two ids)", path=path, line=number
            )
        if tab:
            yield number, (first.strip(), second.strip())
