"""Read rows from Hugging Face data sets and tables (Parquet, JSON Lines, CSV)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from calque.corpora import by_name
from calque.corpora.by_name import PREFIX
from calque.errors import CalqueError, InputError, MissingExtraError
from calque.text_files import unpacked_name

#: builders of the `datasets` library for tables, by suffix
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
    # The first batch was read to learn the columns.
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
        # Streaming reads the file itself, without a copy in the cache of the library.
        builder = TABLES.get(Path(unpacked_name(folder)).suffix.lower())
        if builder is None:
            raise InputError(
                f"unknown suffix, expected one of {', '.join(TABLES)}, or a folder", path=path
            )
        return datasets.load_dataset(builder, data_files=str(folder), split="train", streaming=True)
    if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
        data = datasets.load_from_disk(str(folder))
    else:
        data = datasets.load_dataset(name, config, streaming=folder.is_dir())
    return _split_of(data, name, split, path) if isinstance(data, dict) else data


def _split_of(data: dict[str, Any], name: str, split: str | None, path: str) -> Any:
    """Return one split of a data set, by default `train` or the only split.

    Raises:
        InputError: there is no such split, or the data set has several splits, none of which is
            `train`.
    """
    if split is None and "train" in data:
        split = "train"
    elif split is None and len(data) == 1:
        (split,) = data
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
        # Depending on the version of `datasets`, the type of a list is a list with one type, or an
        # object with the attribute `feature`.
        if isinstance(feature, list) and feature:
            item = feature[0]
        else:
            item = getattr(feature, "feature", feature)
        names = getattr(getattr(item, "feature", item), "names", None)
        if names:
            labels[name] = names
    return labels


def _cause(error: Exception) -> str:
    """Return the type and message of the innermost cause of an error."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return f"{type(error).__name__}: {error!s:.200}"
