"""Data sets of the Hugging Face hub, tables on disk (Parquet, JSON lines, CSV), and saved data sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from calque.corpora.compression import unpacked_name
from calque.corpora.languages import best_match
from calque.corpora.lines import Flaw, Omission, RawCorpus, RawPair
from calque.errors import CalqueError, InputError, MissingExtraError

PREFIX = "hub:"
TABLES = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv"}
_SIDES = (  # names that published data sets use for the two columns
    ("source", "target"), ("src", "tgt"), ("source_text", "target_text"), ("src_text", "tgt_text"),
    ("sourceString", "targetString"), ("sentence1", "sentence2"), ("sentence_1", "sentence_2"), ("text1", "text2"),
)  # fmt: skip


def read_dataset(path: str | PathLike[str], langs: tuple[str, str]) -> RawCorpus:
    """Read with the `datasets` library.

    Args:
        path: a table file; a folder (saved with `save_to_disk`, or of table files); or `hub:NAME`,
            `hub:NAME:SPLIT`, `hub:NAME:CONFIG:SPLIT`, where NAME is a data set of the hub or a folder.
            Without a split it is `train`, or the only one. Files and folders need no network, and are
            streamed.
        langs: found in a column of translations (`{"en": …, "de": …}`), else in columns named by them (`en`,
            `sentence_en`), else the columns are `source` and `target`, `sentence1` and `sentence2`, or the
            like.

    Raises:
        MissingExtraError: `datasets` is not installed.
        InputError: no such data set or split, or no columns with the two languages.
    """
    data = open_dataset(path)
    if not data.first:
        return RawCorpus([], [])
    source, target = _columns(data.first, langs, path)
    used = {source[0], target[0]}
    extra = [name for name, values in data.first.items() if name not in used and not _nested(values)]
    return RawCorpus(_rows(data.batches, source, target, extra, path), extra)


class Dataset(NamedTuple):
    """A data set as its library gives it: columns of up to a thousand rows at a time.

    Attributes:
        first: columns of the first rows; without any where the data set is empty.
        batches: columns of all rows, the first ones included.
        features: the type of each column, as far as it is known.
    """

    first: dict[str, list]
    batches: Iterator[dict[str, list]]
    features: Mapping[str, Any]


def open_dataset(path: str | PathLike[str]) -> Dataset:
    """Open what `read_dataset` takes.

    Raises:
        MissingExtraError: `datasets` is not installed.
        InputError: no such data set or split.
    """
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "hub", "reading data sets and tables") from None
    try:
        data = _open(datasets, fspath(path))
        batches = data.iter(batch_size=1000)
        first = next(batches, {})
        return Dataset(first, _batches(first, batches, path), data.features or {})
    except CalqueError:
        raise
    except Exception as error:  # its files, formats and network fail with errors of many libraries
        raise InputError(f"not a data set that can be read ({_cause(error)})", path=path) from error


def _batches(
    batch: dict[str, list], following: Iterator[dict[str, list]], path: str | PathLike[str]
) -> Iterator[dict[str, list]]:
    rows = 0
    while batch:
        yield batch
        rows += len(next(iter(batch.values())))
        try:
            batch = next(following, {})
        except Exception as error:  # see open_dataset
            fact = f"the data set cannot be read further ({_cause(error)})"
            raise InputError(fact, path=path, line=rows + 1) from error


def _open(datasets: Any, path: str) -> Any:
    """The rows of one split."""
    name, config, split = path, None, None
    if path.startswith(PREFIX):
        name, *rest = path.removeprefix(PREFIX).split(":")
        split = rest[-1] if rest else None
        config = rest[0] if len(rest) > 1 else None
    folder = Path(name)
    if folder.is_file():
        kind = TABLES[Path(unpacked_name(folder)).suffix.lower()]
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
        raise InputError(f"has the splits {', '.join(data)}; name one: {PREFIX}{name}:{next(iter(data))}", path=path)
    return data[split]


Column = tuple[str, str | None]  # a column's name, and the key in it where it holds translations


def _columns(batch: dict[str, list], langs: tuple[str, str], path: str | PathLike[str]) -> tuple[Column, Column]:
    for name, values in batch.items():
        keys = next((list(value) for value in values if isinstance(value, dict)), [])
        source, target = (best_match(lang, keys) for lang in langs)
        if source and target and source != target:
            return (name, source), (name, target)
    texts = [name for name, values in batch.items() if any(isinstance(value, str) for value in values)]
    for prefix in ("", "sentence_", "text_"):
        names = {name.removeprefix(prefix): name for name in texts if name.startswith(prefix)}
        source, target = (best_match(lang, names) for lang in langs)
        if source and target and source != target:
            return (names[source], None), (names[target], None)
    for source, target in _SIDES:
        if source in texts and target in texts:
            return (source, None), (target, None)
    expected = f"a column of translations or columns named {langs[0]} and {langs[1]}, or source and target"
    raise InputError(f"has the columns {', '.join(batch)}; expected {expected}: rename them", path=path)


def _nested(values: Sequence[object]) -> bool:
    return any(isinstance(value, list | dict | bytes) for value in values)


def _rows(
    batches: Iterator[dict[str, list]], source: Column, target: Column, extra: list[str], path: str | PathLike[str]
) -> Iterator[RawPair | Flaw | Omission]:
    number = 0
    for batch in batches:
        sides = [_side(batch, column) for column in (source, target)]
        others = [batch.get(name) or [None] * len(sides[0]) for name in extra]
        for k, (left, right) in enumerate(zip(*sides, strict=True)):
            number += 1
            if isinstance(left, str) and isinstance(right, str):
                yield RawPair(number, left, right, [None if v[k] is None else str(v[k]) for v in others])
            else:
                side, value = ("target", right) if isinstance(left, str) else ("source", left)
                yield Flaw(number, "missing value", f"the {side} side is {value!r:.40}, expected text", path)


def _side(batch: dict[str, list], column: Column) -> list:
    name, key = column
    values = batch.get(name, [])
    return values if key is None else [value.get(key) if isinstance(value, dict) else None for value in values]


def _cause(error: Exception) -> str:
    """The message of the last cause, in one line."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
