"""Parallel text of every common format, as a `ParallelCorpus`: the format of a path, the files it means, the readers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, get_args

from calque.corpora.languages import TWO_LETTERS
from calque.corpora.lines import (
    BLANK,
    Flaw,
    Omission,
    RawCorpus,
    RawPair,
    Skipped,
    find_packed,
    read_blocks,
    read_lines,
    unpacked_name,
)
from calque.corpora.rows import PREFIX, read_dataset
from calque.corpora.store import TableWriter
from calque.corpora.tmx import read_tmx
from calque.errors import InputError, SettingError
from calque.pairs import WordPairs
from calque.progress import bar
from calque.segment import get_segmenter, language_parts, split_spaces
from calque.text import ParallelCorpus

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


OnError = Literal["raise", "skip", "blank"]
_Split = Callable[[str], Sequence[str]]


def read_parallel(
    path: AnyPath | tuple[AnyPath, AnyPath], *, langs: tuple[str, str], format: Format | None = None,
    pretokenized: bool = False, on_error: OnError = "raise", limit: int | None = None, progress: bool = False,
) -> ParallelCorpus:  # fmt: skip
    """Read parallel text, divided into words.

    Text files may be packed with gzip, zstd, xz or bzip2. The data streams: up to 32 MB of words stay in memory, more goes to
    a temporary file (in `TMPDIR`) that is mapped into memory and vanishes with the process.

    Args:
        path: one file, or two of which line n translates line n (Moses). A prefix stands for the two files
            `prefix.en` and `prefix.de`; `hub:NAME` is a data set (see `rows.open_rows`), as is a folder.
        langs: the languages of source and target. TMX and data sets are searched for them.
        format: what the file is, where its name and first lines do not show it: `tsv` (`source⇥target`,
            further columns become the metadata `column_3`, `column_4` …), `moses`, `fast-align` (`source |||
            target`), `tmx`, `arrow` (`ParallelCorpus.save`), `hub` (data sets, Parquet, JSON lines,
            CSV).
        pretokenized: words are what stands between spaces; otherwise `segment.split_words` divides the text.
        on_error: what becomes of a line without a usable pair (a column or side is missing or empty, bytes
            that are not UTF-8, a NUL). `raise`: an error names it. `skip`: it is left out and counted in
            `corpus.skipped`, and `corpus.lines` keeps the line of every pair. `blank`: it is counted, and
            becomes a pair of empty sentences, so that pair i is line i + 1. In every mode, blank lines at the
            end of a file are no error (`blank` keeps them), what a format itself calls no pair (an
            untranslated message) is left out and counted, and damage that makes the rest unreadable is an
            error.
        limit: read only the first `limit` pairs.
        progress: show a bar on stderr.

    Raises:
        InputError: the file cannot be read, or holds no pair, or (`on_error="raise"`) a line holds none.
        SettingError: an argument has no such value.
        MissingExtraError: a library that the format needs is not installed.
    """
    if isinstance(langs, str) or len(langs) != 2:
        raise SettingError(f"langs is {langs!r}, expected two languages, as ('en', 'de')")
    if on_error not in ("raise", "skip", "blank"):
        raise SettingError(f"on_error is {on_error!r}, expected 'raise', 'skip' or 'blank'")
    if format is not None and format not in FORMATS:
        raise SettingError(f"no format {format!r}, there are {', '.join(FORMATS)}")
    if limit is not None and limit < 0:
        raise SettingError(f"limit is {limit}, expected a number of pairs")
    langs = (langs[0], langs[1])
    paths, format = find_format(path, langs, format)
    if format == "arrow":
        return _saved(paths[0], langs, limit)
    split, names = _splitters(langs, pretokenized)
    source = open_raw(paths, langs, format)
    reading = _Reading(paths[0], split, on_error, TableWriter(source.columns, lines=on_error == "skip"))
    with bar(None, unit=" lines", show=progress) as shown:
        for item in source.items if limit != 0 else ():
            reading.take(item)
            shown.update()
            if reading.pairs == limit:
                break
    skipped = reading.skipped
    if not reading.pairs and limit != 0:
        raise InputError(f"no sentence pair could be read: {str(skipped) or 'the file is empty'}", path=paths[0])
    return ParallelCorpus(
        reading.writer.finish(), langs, skipped=skipped.counts, first_skipped=skipped.first, segmenters=names, path=paths[0]
    )  # fmt: skip


class _Reading:
    """What happens to each item, and the count of what could not be used."""

    def __init__(self, path: str, split: tuple[_Split, _Split], on_error: OnError, writer: TableWriter):
        self._path, self._split, self._on_error, self.writer = path, split, on_error, writer
        self.pairs = 0
        self.skipped = Skipped()
        self._blanks: list[Flaw] = []  # a run of blank lines, which counts only if something follows

    def take(self, item: RawPair | Flaw | Omission) -> None:
        """Divide a pair into words; count what is none."""
        if isinstance(item, Omission):
            self.skipped.count(item, self._path)
        elif isinstance(item, Flaw):
            self._refuse(item)
        else:
            line, source_text, target_text, extra = item
            source, target = self._split[0](source_text), self._split[1](target_text)
            if not source or not target:
                side = "target" if source else "source"
                fact = f"the {side} side has no words, expected text"
                self._refuse(Flaw(line, f"empty {side}", fact, self._path))
            elif self.writer.width is not None and len(extra) > self.writer.width:
                fact = f"{len(extra) + 2} columns, expected at most {self.writer.width + 2} as in the first lines; is there a "
                self._refuse(Flaw(line, "too many columns", f"{fact}separator in the text?", self._path))
            else:
                self._settle_blanks()
                self.writer.add(source, target, extra, line, len(source_text) + len(target_text))
                self.pairs += 1

    def _refuse(self, item: Flaw) -> None:
        """Raise or count a line without a usable pair."""
        if item.reason == BLANK and self._on_error != "blank":
            self._blanks.append(item)
            return
        self._settle_blanks()
        if self._on_error == "raise":
            raise _error(item)
        self.skipped.count(item, item.path)
        if self._on_error == "blank":
            self.writer.add((), (), (), item.line, 0)
            self.pairs += 1

    def _settle_blanks(self) -> None:
        for blank in self._blanks:
            if self._on_error == "raise":
                raise _error(blank)
            self.skipped.count(blank, blank.path)
        self._blanks = []


def _error(flaw: Flaw) -> InputError:
    return InputError(f'{flaw.fact}; or read with on_error="skip"', path=flaw.path, line=flaw.line)


def _splitters(langs: tuple[str, str], pretokenized: bool) -> tuple[tuple[_Split, _Split], tuple[str, str]]:
    """What divides each side into words, and its name."""
    if pretokenized:
        return (split_spaces, split_spaces), ("spaces", "spaces")
    source, target = map(get_segmenter, langs)
    return (source.split, target.split), (source.name, target.name)


def _saved(path: str, langs: tuple[str, str], limit: int | None) -> ParallelCorpus:
    corpus = ParallelCorpus.open(path)
    if corpus.langs == (langs[1], langs[0]):
        corpus = corpus.swapped()
    if corpus.langs != langs:
        saved, asked = "-".join(corpus.langs), "-".join(langs)
        raise InputError(f"a saved corpus in {saved}, expected {asked}; ask for the languages it has", path=path)
    return corpus if limit is None or limit >= len(corpus) else corpus[:limit]


def gold_links(
    corpus: ParallelCorpus, *, column: str = "column_3", one_based: bool = False, check: bool = True
) -> WordPairs:
    """The word links that stand in a column of the corpus's own file, as `0-0 1?2`; checked against its
    words unless `check` is False.

    Raises:
        SettingError: there is no such column.
        InputError: a line is not made of links, or links a word that its sentence has not.
    """
    lines = [text or "" for text in corpus.metadata(column)]
    try:
        pairs = WordPairs.parse(lines, one_based=one_based, path=corpus.path)
        return pairs.check(corpus, path=corpus.path) if check else pairs
    except InputError as error:
        numbers = corpus.lines
        line = error.line if numbers is None or error.line is None else int(numbers[error.line - 1])
        raise InputError(error.fact, path=error.path, line=line) from error
