"""Rows of data sets of the Hugging Face hub and of tables, with the names of labels that they keep as numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from calque.corpora import hub
from calque.corpora.compression import unpacked_name
from calque.errors import InputError


class Rows(NamedTuple):
    """A data set.

    Attributes:
        columns: their names.
        labels: by column, the names behind its numbers (`ClassLabel`).
        rows: each with its number, from 1.
    """

    columns: list[str]
    labels: Mapping[str, Sequence[str]]
    rows: Iterator[tuple[int, dict[str, Any]]]

    def name_of(self, column: str, value: object) -> object:
        """The name behind a number, None where it has none (−1); other values as they are."""
        names = self.labels.get(column)
        if names is None or not isinstance(value, int):
            return value
        return names[value] if 0 <= value < len(names) else None

    def choose(self, groups: Sequence[Sequence[str]], path: str | PathLike[str]) -> list[str]:
        """For each group of names that published data sets use, the first that is a column here.

        Raises:
            InputError: there is a group without one.
        """
        chosen = [name for group in groups if (name := first_of(group, self.columns))]
        if len(chosen) < len(groups):
            expected = ", ".join(" or ".join(group[:2]) for group in groups)
            fact = f"has the columns {', '.join(self.columns)[:200]}; expected {expected}; rename them"
            raise InputError(fact, path=path)
        return chosen


def is_dataset(path: str | PathLike[str]) -> bool:
    """Whether `open_rows` is what reads this: a name on the hub, a folder, or a table by its suffix."""
    name = fspath(path)
    return name.startswith(hub.PREFIX) or os.path.isdir(name) or Path(unpacked_name(name)).suffix.lower() in hub.TABLES


def first_of(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """The first of some names that a data set has as a column."""
    return next((name for name in names if name in columns), None)


def uneven(columns: Sequence[object], names: Sequence[str], *, least: int = 0) -> str | None:
    """What is wrong with the values of columns that should be lists with a value for each of `least` or more words."""
    sizes = [len(column) if isinstance(column, list) else "no" for column in columns]
    if len(set(sizes)) == 1 and isinstance(sizes[0], int) and sizes[0] >= least:
        return None
    return f"lists of {', '.join(map(str, sizes))} values in {', '.join(names)}, expected one for each word"


def unwritten(heads: object) -> list[bool]:
    """Which of the tokens of a sentence of Universal Dependencies, as on the hub, are no words of the tree: what is written
    as one word and then comes again in its parts, and words that are not written. They have no head."""
    return [head in (None, "None", "_", "") for head in heads] if isinstance(heads, list) else []


def open_rows(path: str | PathLike[str]) -> Rows:
    """Open what `hub.read_dataset` takes: a table file, a folder or `hub:NAME[[:CONFIG]:SPLIT]`.

    Raises:
        MissingExtraError: `datasets` is not installed.
        InputError: no such data set or split.
    """
    data = hub.open_dataset(path)
    rows = (
        dict(zip(batch, values, strict=True)) for batch in data.batches for values in zip(*batch.values(), strict=True)
    )
    return Rows(list(data.first), _labels(data.features), enumerate(rows, 1))


def _labels(features: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Of columns of labels and of columns of lists of them."""
    labels = {}
    for name, feature in features.items():
        item = feature[0] if isinstance(feature, list) and feature else getattr(feature, "feature", feature)
        if names := getattr(getattr(item, "feature", item), "names", None):
            labels[name] = names
    return labels
