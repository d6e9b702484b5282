"""Read rows from Hugging Face data sets and tables (Parquet, JSON Lines, CSV), and parallel text in
these formats.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from calque.corpora import by_name
from calque.corpora.by_name import PREFIX
from calque.corpora.columns import TEXT_COLUMNS
from calque.corpora.languages import best_match
from calque.corpora.lines import RawCorpus, RawPair
from calque.errors import CalqueError, InputError, MissingExtraError
from calque.text_files import Flaw, unpacked_name

TABLES = {
    ".parquet": "parquet",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
}


class Rows(NamedTuple):
    """Rows of a data set, numbered from 1, with the first values of each column and the names of
    numeric labels.
    """

    first: dict[str, list]
    labels: Mapping[str, Sequence[str]]
    rows: Iterator[tuple[int, dict[str, Any]]]

    @property
    def columns(self) -> list[str]:
        return list(self.first)

    def name_of(self, column: str, value: object) -> object:
        """Return the name of a numeric label, or None for −1; other values are returned
        unchanged.
        """
        names = self.labels.get(column)
        if names is None or not isinstance(value, int):
            return value
        return names[value] if 0 <= value < len(names) else None


def is_dataset(path: str | PathLike[str]) -> bool:
    """Return whether `open_rows` can read a path: a name on the hub, a folder, or a file with the
    suffix of a table format.
    """
    name = fspath(path)
    return (
        name.startswith(PREFIX)
        or os.path.isdir(name)
        or Path(unpacked_name(name)).suffix.lower() in TABLES
    )


def first_of(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """Return the first of `names` that is also in `columns`, or None."""
    return next((name for name in names if name in columns), None)


def open_rows(path: str | PathLike[str]) -> Rows:
    """Open a data set with the `datasets` library.

    Args:
        path: a table file; a folder saved with `save_to_disk` or containing table files;
            `hub:NAME`, `hub:NAME:SPLIT` or `hub:NAME:CONFIG:SPLIT`, where NAME is a data set on the
            hub or a folder; or a name in `by_name`, such as `hub:pan-x:de`. The default split is
            `train` if it exists, otherwise the only split. Local data needs no network.
    """
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "hub", "reading data sets and tables") from None
    try:
        data = _open(datasets, fspath(path))
        batches = data.iter(batch_size=1000)
        first = next(batches, {})
        return Rows(first, _labels(data.features or {}), enumerate(_rows(first, batches, path), 1))
    except CalqueError:
        raise
    except Exception as error:  # reading can raise exceptions from many different libraries
        fact = f"the data set cannot be read ({_cause(error)}){by_name.remedy(path)}"
        raise InputError(fact, path=path) from error


def _rows(
    batch: dict[str, list], following: Iterator[dict[str, list]], path: str | PathLike[str]
) -> Iterator[dict[str, Any]]:
    number = 0
    while batch:
        for values in zip(*batch.values(), strict=True):
            number += 1
            yield dict(zip(batch, values, strict=True))
        try:
            batch = next(following, {})
        except Exception as error:  # exceptions of any type, as in `open_rows`
            raise InputError(
                f"the next row cannot be read ({_cause(error)})", path=path, line=number + 1
            ) from error


def _open(datasets: Any, path: str) -> Any:
    """Open one split of a data set."""
    name, config, split = by_name.place(path)
    folder = Path(name)
    if folder.is_file():
        kind = TABLES.get(Path(unpacked_name(folder)).suffix.lower())
        if kind is None:
            raise InputError(
                f"unknown suffix, expected one of {', '.join(TABLES)}, or a folder", path=path
            )
        return datasets.load_dataset(kind, data_files=str(folder), split="train", streaming=True)
    if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
        data = datasets.load_from_disk(str(folder))
    else:
        data = datasets.load_dataset(name, config, streaming=folder.is_dir())
    if not isinstance(data, dict):
        return data
    if split is None:
        split = "train" if "train" in data else next(iter(data)) if len(data) == 1 else None
    if split not in data:
        raise InputError(
            f"has the splits {', '.join(data)}; choose one: {PREFIX}{name}:{next(iter(data))}",
            path=path,
        )
    return data[split]


def _labels(features: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return the label names of each column that contains labels or lists of labels."""
    labels = {}
    for name, feature in features.items():
        item = (
            feature[0]
            if isinstance(feature, list) and feature
            else getattr(feature, "feature", feature)
        )
        if names := getattr(getattr(item, "feature", item), "names", None):
            labels[name] = names
    return labels


def _cause(error: Exception) -> str:
    """Return the type and message of the innermost cause of an error."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return f"{type(error).__name__}: {error!s:.200}"


# -- parallel text
# --------------------------------------------------------------------------------------------------
Column = tuple[
    str, str | None
]  # column name, and the language key if the column contains translations


def read_dataset(path: str | PathLike[str], langs: tuple[str, str]) -> RawCorpus:
    """Read parallel text from a path that `open_rows` supports, or from a name in `by_name`, such
    as `hub:tatoeba`.

    The text is read from a column of translations (`{"en": …, "de": …}`) or from columns named
    after the languages (`en`, `sentence_en`), and otherwise from the columns `source` and `target`,
    `sentence1` and `sentence2`, or similar.
    """
    if (sides := by_name.sides(path, langs)) is not None:
        return RawCorpus(_joined(sides, path), [])
    data = open_rows(path)
    if not data.first:
        return RawCorpus([], [])
    source, target = _sides(data.first, langs, path)
    nested = {
        name
        for name, values in data.first.items()
        if any(isinstance(x, list | dict | bytes) for x in values)
    }
    extra = [name for name in data.first if name not in {source[0], target[0], *nested}]
    return RawCorpus(
        (_pair(number, row, row, source, target, extra) for number, row in data.rows), extra
    )


def _sides(
    batch: dict[str, list], langs: tuple[str, str], path: str | PathLike[str]
) -> tuple[Column, Column]:
    for name, values in batch.items():
        keys = next((list(value) for value in values if isinstance(value, dict)), [])
        source, target = (best_match(lang, keys) for lang in langs)
        if source and target and source != target:
            return (name, source), (name, target)
    texts = [
        name for name, values in batch.items() if any(isinstance(value, str) for value in values)
    ]
    for prefix in ("", "sentence_", "text_"):
        names = {name.removeprefix(prefix): name for name in texts if name.startswith(prefix)}
        source, target = (best_match(lang, names) for lang in langs)
        if source and target and source != target:
            return (names[source], None), (names[target], None)
    for source, target in TEXT_COLUMNS:
        if source in texts and target in texts:
            return (source, None), (target, None)
    expected = (
        f"a column of translations or columns named {langs[0]} and {langs[1]}, or source and target"
    )
    raise InputError(
        f"has the columns {', '.join(batch)}; expected {expected}: rename the columns", path=path
    )


def _pair(
    number: int,
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    source: Column,
    target: Column,
    extra: Sequence[str] = (),
) -> RawPair | Flaw:
    texts = []
    for row, (name, key), side in ((left, source, "source"), (right, target, "target")):
        value = row.get(name)
        text = value if key is None else value.get(key) if isinstance(value, dict) else None
        if not isinstance(text, str):
            return Flaw(number, "missing value", f"the {side} side is {text!r:.40}, expected text")
        texts.append(text)
    others = (left.get(name) for name in extra)
    return RawPair(
        number, texts[0], texts[1], [None if value is None else str(value) for value in others]
    )


def _joined(
    sides: Sequence[tuple[str, str]], path: str | PathLike[str]
) -> Iterator[RawPair | Flaw]:
    """Yield sentence pairs from two columns of one data set, or from one column in each of two
    parallel data sets.
    """
    (first, source), (second, target) = sides
    same = first == second
    rows, other = open_rows(first).rows, iter(()) if same else open_rows(second).rows
    number = 0
    for number, row in rows:
        beside = row if same else next(other, (0, None))[1]
        if beside is None:
            break
        yield _pair(number, row, beside, (source, None), (target, None))
    else:
        if next(other, None) is None:
            return
    raise InputError(
        "the two languages have different numbers of sentences", path=path, line=number
    )
