"""Rows of data sets of the Hugging Face hub and of tables, with the names of labels that they keep as numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from calque.corpora import hub
from calque.corpora.compression import unpacked_name
from calque.errors import CalqueError, InputError, MissingExtraError


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


def is_dataset(path: str | PathLike[str]) -> bool:
    """Whether `open_rows` is what reads this: a name on the hub, a folder, or a table by its suffix."""
    name = fspath(path)
    return name.startswith(hub.PREFIX) or os.path.isdir(name) or Path(unpacked_name(name)).suffix.lower() in hub.TABLES


def first_of(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """The first of some names that a data set has as a column."""
    return next((name for name in names if name in columns), None)


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
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "hub", "reading data sets and tables") from None
    try:
        data = hub._open(datasets, fspath(path))
        batches = data.iter(batch_size=1000)
        first = next(batches, None)
        labels = _labels(data.features or {})
    except CalqueError:
        raise
    except Exception as error:  # its files, formats and network fail with errors of many libraries
        raise InputError(f"not a data set that can be read ({hub._said(error)})", path=path) from error
    return Rows(list(first or ()), labels, _rows(first, batches, path))


def _labels(features: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Of columns of labels and of columns of lists of them."""
    items = {
        name: feature[0] if isinstance(feature, list) and feature else feature for name, feature in features.items()
    }
    items = {name: getattr(feature, "feature", feature) for name, feature in items.items()}
    return {name: item.names for name, item in items.items() if getattr(item, "names", None)}


def _rows(
    batch: dict[str, list] | None, batches: Iterator[dict[str, list]], path: str | PathLike[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    while batch is not None:
        for values in zip(*batch.values(), strict=True):
            number += 1
            yield number, dict(zip(batch, values, strict=True))
        try:
            batch = next(batches, None)
        except Exception as error:  # see open_rows
            fact = f"the data set cannot be read further ({hub._said(error)})"
            raise InputError(fact, path=path, line=number + 1) from error
