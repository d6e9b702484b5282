"""Parallel text in data sets of the Hugging Face hub, tables on disk (Parquet, JSON lines, CSV), and saved data sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from calque.corpora import by_name
from calque.corpora.languages import best_match
from calque.corpora.lines import Flaw, Omission, RawCorpus, RawPair
from calque.corpora.rows import Rows, open_rows
from calque.errors import InputError

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
            streamed. Or a name of `by_name`, `hub:tatoeba`.
        langs: found in a column of translations (`{"en": …, "de": …}`), else in columns named by them (`en`,
            `sentence_en`), else the columns are `source` and `target`, `sentence1` and `sentence2`, or the
            like.

    Raises:
        MissingExtraError: `datasets` is not installed.
        InputError: no such data set or split, or no columns with the two languages.
    """
    if (sides := by_name.sides(path, langs)) is not None:
        return RawCorpus(_joined(sides, path), [])
    data = open_rows(path)
    if not data.first:
        return RawCorpus([], [])
    source, target = _columns(data.first, langs, path)
    used = {source[0], target[0]}
    extra = [name for name, values in data.first.items() if name not in used and not _nested(values)]
    return RawCorpus(_pairs(data, source, target, extra, path), extra)


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


def _pairs(
    data: Rows, source: Column, target: Column, extra: list[str], path: str | PathLike[str]
) -> Iterator[RawPair | Flaw | Omission]:
    for number, row in data.rows:
        left, right = _text(row, source), _text(row, target)
        if isinstance(left, str) and isinstance(right, str):
            others = (row.get(name) for name in extra)
            yield RawPair(number, left, right, [None if value is None else str(value) for value in others])
        else:
            side, value = ("target", right) if isinstance(left, str) else ("source", left)
            yield Flaw(number, "missing value", f"the {side} side is {value!r:.40}, expected text", path)


def _joined(sides: Sequence[tuple[str, str]], path: str | PathLike[str]) -> Iterator[RawPair | Flaw | Omission]:
    """Of a data set by name: the columns of one data set, or of two, line by line."""
    (first, source), (second, target) = sides
    data = open_rows(first)
    if first == second:
        yield from _pairs(data, (source, None), (target, None), [], path)
        return
    other = (row for _, row in open_rows(second).rows)
    number = 0
    for number, row in data.rows:
        if (beside := next(other, None)) is None:
            break
        both = Rows({}, {}, iter([(number, {"source": row.get(source), "target": beside.get(target)})]))
        yield from _pairs(both, ("source", None), ("target", None), [], path)
    else:
        if next(other, None) is None:
            return
    raise InputError("the two languages have different numbers of sentences", path=path, line=number)


def _text(row: Mapping[str, Any], column: Column) -> Any:
    name, key = column
    value = row.get(name)
    return value if key is None else value.get(key) if isinstance(value, dict) else None
