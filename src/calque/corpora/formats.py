"""The format of a path, the files it means, and the reader of each format."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import zip_longest
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, get_args

from calque.corpora.languages import TWO_LETTERS
from calque.corpora.lines import BLANK, Flaw, RawCorpus, RawPair, find_packed, read_blocks, read_lines, unpacked_name
from calque.corpora.rows import PREFIX, read_dataset
from calque.corpora.tmx import read_tmx
from calque.errors import InputError, SettingError
from calque.segment import language_parts

_MOST_COLUMNS = 100  # each becomes a column of the table; a damaged line can have a million

AnyPath = str | PathLike[str]
Format = Literal["tsv", "moses", "fast-align", "tmx", "arrow", "hub"]
FORMATS = get_args(Format)

_BY_NAME: dict[str, Format] = {".tmx": "tmx", ".tsv": "tsv", ".tab": "tsv"}
_BY_NAME |= {".arrow": "arrow", ".parquet": "hub", ".jsonl": "hub", ".ndjson": "hub", ".json": "hub"}


def find_format(
    path: AnyPath | tuple[AnyPath, AnyPath], langs: tuple[str, str], format: Format | None = None
) -> tuple[list[str], Format]:
    """The file or files that a path means, and their format.

    Raises:
        InputError: there is no such file.
        SettingError: two files, and a format of one.
    """
    if isinstance(path, tuple | list):
        if len(path) != 2 or format not in (None, "moses"):
            raise SettingError(f"{len(path)} paths with format {format}, expected two with format 'moses' or one")
        return [fspath(path[0]), fspath(path[1])], "moses"
    name = fspath(path)
    if name.startswith(PREFIX):
        return [name], "hub"
    try:
        if format == "moses" or (format is None and not os.path.exists(name)):
            pair = moses_files(name, langs)
            if len(pair) == 2:
                return pair, "moses"
        if format == "moses" or not os.path.exists(name):
            fact = f"no such file, nor {name}.{langs[0]} with {name}.{langs[1]}; is the path right?"
            raise InputError(f"{fact} (a data set of the Hugging Face hub is written hub:{name})", path=path)
    except ValueError as error:  # a NUL in the path
        raise InputError(f"no path of a file ({error})") from error
    if os.path.isdir(name) and format in (None, "hub"):
        return [name], "hub"
    return [name], format or _detect(name)


def moses_files(prefix: AnyPath, langs: tuple[str, str]) -> list[str]:
    """The files `PREFIX.LANG` of both languages, packed or not; fewer where one is missing. Of German, LANG is de, deu or ger."""
    found = []
    for lang in langs:
        code = language_parts(lang)[0]
        tags = dict.fromkeys((lang, code, *(three for three, two in TWO_LETTERS.items() if two == code)))
        found += [str(file) for tag in tags if (file := find_packed(f"{fspath(prefix)}.{tag}"))][:1]
    return found


def _detect(path: str) -> Format:
    suffix = Path(unpacked_name(path)).suffix.lower()
    if suffix in _BY_NAME:
        return _BY_NAME[suffix]
    if suffix == ".po":
        raise InputError("PO files are not read; make TMX of it, as with po2tmx of translate-toolkit", path=path)
    head = next(read_blocks(path), b"").removeprefix(b"\xef\xbb\xbf")
    if head.startswith(b"ARROW1"):
        return "arrow"
    if head.lstrip().startswith((b"<?xml", b"<tmx", b"<!DOCTYPE tmx")):
        return "tmx"
    for line in head.split(b"\n"):
        if b"\t" in line:
            return "tsv"
        if b"|||" in line:
            return "fast-align"
    return "hub" if suffix == ".csv" else "tsv"


def open_raw(paths: list[str], langs: tuple[str, str], format: Format) -> RawCorpus:
    """Open the sentence pairs of a text format or data set."""
    if format == "hub":
        return read_dataset(paths[0], langs)
    if format == "moses":
        return RawCorpus(read_moses(paths[0], paths[1]))
    if format in ("tsv", "fast-align"):
        return RawCorpus(read_columns(paths[0], "\t" if format == "tsv" else "|||"))
    return RawCorpus(read_tmx(paths[0], langs))


# -- a sentence pair a line ----------------------------------------------------------------------------------------------
def read_columns(path: str | PathLike[str], separator: str) -> Iterator[RawPair | Flaw]:
    """Read `source⇥target` or `source ||| target`, the input of fast_align; further columns are kept. Quotes have no meaning.

    Args:
        separator: a tab or `|||`.
    """
    for number, line in enumerate(read_lines(path), 1):
        yield _pair(line, number, path, separator)


def _pair(line: str | Flaw, number: int, path: str | PathLike[str], separator: str) -> RawPair | Flaw:
    if isinstance(line, Flaw):
        return line
    source, divided, rest = line.partition(separator)
    if not divided:
        if not line or line.isspace():
            return Flaw(number, BLANK, "blank, expected a sentence pair", path)
        fact = f"one column, expected source and target separated by {'a tab' if separator == chr(9) else separator}"
        return Flaw(number, "missing column", f"{fact} (two files are given as a pair of paths)", path)
    if separator not in rest:
        return RawPair(number, source, rest)
    target, *extra = rest.split(separator, _MOST_COLUMNS)
    if len(extra) < _MOST_COLUMNS:
        return RawPair(number, source, target, extra)
    fact = f"more than {_MOST_COLUMNS} columns, expected source and target; is there a separator in the text?"
    return Flaw(number, "too many columns", fact, path)


def read_moses(source: str | PathLike[str], target: str | PathLike[str]) -> Iterator[RawPair | Flaw]:
    """Read two files of which line n of the one translates line n of the other."""
    pairs = enumerate(zip_longest(read_lines(source), read_lines(target)), 1)
    for number, (left, right) in pairs:
        if left is None or right is None:  # one has ended; blank lines at the end of the other are no matter
            rest = [(number, left or right), *((n, one or other) for n, (one, other) in pairs)]
            if all(not line or (isinstance(line, str) and line.isspace()) for _, line in rest):
                return
            shorter, longer = (source, target) if left is None else (target, source)
            fact = f"{number - 1} lines, but {fspath(longer)} has {rest[-1][0]}, expected as many"
            raise InputError(f"{fact}; was one of them filtered alone?", path=shorter)
        if isinstance(left, Flaw):
            yield left
        elif isinstance(right, Flaw):
            yield right
        elif not left.strip() and not right.strip():
            yield Flaw(number, BLANK, "blank in both files, expected a sentence pair", source)
        elif not right.strip():
            yield Flaw(number, "empty target", "the target side is empty, expected text", target)
        else:
            yield RawPair(number, left, right)
