"""The format of a path, the files it means, and the reader of each format."""

from __future__ import annotations

import os
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, get_args

from calque.corpora.columns import read_columns, read_moses
from calque.corpora.languages import TWO_LETTERS
from calque.corpora.lines import RawCorpus, find_packed, read_blocks, unpacked_name
from calque.corpora.rows import PREFIX, read_dataset
from calque.corpora.tmx import read_tmx
from calque.errors import InputError, SettingError
from calque.segment import language_parts

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
