"""Parallel text of every common format, as a `ParallelCorpus`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from calque.corpora.blocks import Block
from calque.corpora.formats import FORMATS, AnyPath, Format, find_format, open_raw
from calque.corpora.lines import BLANK, Flaw, Omission, RawPair, Skipped
from calque.corpora.store import TableWriter, cache_file
from calque.errors import InputError, SettingError
from calque.pairs import WordPairs
from calque.progress import bar
from calque.segment import get_segmenter, split_spaces
from calque.text import ParallelCorpus, corpus_record

OnError = Literal["raise", "skip", "blank"]
_Split = Callable[[str], Sequence[str]]

_READING = 1  # raise it with any change that gives other sentence pairs: kept readings are made anew


def read_parallel(
    path: AnyPath | tuple[AnyPath, AnyPath],
    *,
    langs: tuple[str, str],
    format: Format | None = None,
    pretokenized: bool = False,
    on_error: OnError = "raise",
    limit: int | None = None,
    cache: AnyPath | None = None,
    segmenters: Mapping[str, str] | None = None,
    progress: bool = False,
) -> ParallelCorpus:
    """Read parallel text, divided into words.

    Text files may be packed with gzip, zstd, xz or bzip2. The data streams: up to 32 MB of words stay in
    memory, more goes to a temporary file (in `TMPDIR`) that is mapped into memory and vanishes with the
    process, or into `cache`, where the next reading with the same settings finds it.

    Args:
        path: one file, or two of which line n translates line n (Moses). A prefix stands for the two files
            `prefix.en` and `prefix.de`; `hub:NAME` is a data set (see `hub.read_dataset`), as is a folder.
        langs: the languages of source and target. TMX and data sets are searched for them.
        format: what the file is, where its name and first lines do not show it: `tsv` (`source⇥target`,
            further columns become the metadata `column_3`, `column_4` …), `moses`, `fast-align` (`source |||
            target`), `tmx`, `po`, `arrow` (`ParallelCorpus.save`), `hub` (data sets, Parquet, JSON lines,
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
        cache: a folder for readings to be used again.
        segmenters: libraries other than the default that divide a language into words, as
            `{"ja": "fugashi"}`; see `segment.Segmenter`.
        progress: show a bar on stderr.

    Raises:
        InputError: the file cannot be read, or holds no pair, or (`on_error="raise"`) a line holds none.
        SettingError: an argument has no such value.
        MissingExtraError: a library that the format or a segmenter needs is not installed.
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
    split, names = _splitters(langs, pretokenized, segmenters or {})
    cached = None
    if cache is not None and Path(paths[0]).is_file():
        settings = [_READING, langs, format, pretokenized, on_error, limit, names]
        cached = cache_file(cache, paths, settings)
        with suppress(InputError):  # not there yet, or damaged
            return ParallelCorpus.open(cached)
    source = open_raw(paths, langs, format, divided=pretokenized)
    reading = _Reading(paths[0], langs, names, on_error)
    writer = TableWriter(
        cached, columns=source.columns, lines=on_error == "skip", record=corpus_record(**reading.about())
    )
    try:
        items = source.items if limit != 0 else ()
        with bar(None, unit=" lines", show=progress) as shown:
            for item in items:
                if isinstance(item, Block):
                    part = item if limit is None else item.first(limit - reading.pairs)
                    reading.take_block(part, writer)
                    shown.update(len(part))
                else:
                    reading.take(item, split, writer)
                    shown.update()
                if reading.pairs == limit:
                    break
        if not reading.pairs and limit != 0:
            why = str(reading.skipped) or "the file is empty"
            raise InputError(f"no sentence pair could be read: {why}", path=paths[0])
        table = writer.finish(corpus_record(**reading.about()))
    finally:
        writer.discard()
    return ParallelCorpus(table, **reading.about())


class _Reading:
    """What happens to each item, and the count of what could not be used."""

    def __init__(self, path: str, langs: tuple[str, str], segmenters: tuple[str, str], on_error: OnError):
        self._path, self._langs, self._segmenters, self._on_error = path, langs, segmenters, on_error
        self.pairs = 0
        self.skipped = Skipped()
        self._blank: Flaw | None = None  # the first of a run of blank lines, which counts only if something follows
        self._blanks = 0

    def take_block(self, block: Block, writer: TableWriter) -> None:
        """A block of which every line is a usable pair."""
        if writer.width is not None and len(block.extra) > writer.width:
            for line in range(block.line, block.line + len(block)):
                row = RawPair(line, "", "", [None] * len(block.extra))
                self._refuse(_flaw(row, self._path, ("",), ("",), writer.width), writer)  # only its width is wrong
            return
        self._settle_blanks()
        writer.add_block(block)
        self.pairs += len(block)

    def take(self, item: RawPair | Flaw | Omission, split: tuple[_Split, _Split], writer: TableWriter) -> None:
        if isinstance(item, Omission):
            self.skipped.count(item, self._path)
            return
        if isinstance(item, RawPair):
            line, source_text, target_text, extra = item
            source, target = split[0](source_text), split[1](target_text)
            if source and target and (writer.width is None or len(extra) <= writer.width):
                self._settle_blanks()
                writer.add(source, target, extra, line, len(source_text) + len(target_text))
                self.pairs += 1
                return
            item = _flaw(item, self._path, source, target, writer.width)
        self._refuse(item, writer)

    def _refuse(self, item: Flaw, writer: TableWriter) -> None:
        """A line without a usable pair."""
        if item.reason == BLANK and self._on_error != "blank":
            self._blank, self._blanks = self._blank or item, self._blanks + 1
            return
        self._settle_blanks()
        if self._on_error == "raise":
            raise _error(item)
        self.skipped.count(item, item.path)
        if self._on_error == "blank":
            writer.add((), (), (), item.line, 0)
            self.pairs += 1

    def _settle_blanks(self) -> None:
        if self._blank is not None:
            if self._on_error == "raise":
                raise _error(self._blank)
            self.skipped.count(self._blank, self._blank.path, self._blanks)
        self._blank, self._blanks = None, 0

    def about(self) -> dict[str, Any]:
        return {
            "langs": self._langs,
            "skipped": self.skipped.counts,
            "first_skipped": self.skipped.first,
            "segmenters": self._segmenters,
            "path": self._path,
        }


def _flaw(record: RawPair, path: str, source: Sequence[str], target: Sequence[str], width: int | None) -> Flaw:
    if source and target:
        fact = f"{len(record.extra) + 2} columns, expected at most {(width or 0) + 2} as in the first lines"
        return Flaw(record.line, "too many columns", f"{fact}; is there a separator in the text?", path)
    side = "target" if source else "source"
    return Flaw(record.line, f"empty {side}", f"the {side} side has no words, expected text", path)


def _error(flaw: Flaw) -> InputError:
    return InputError(f'{flaw.fact}; or read with on_error="skip"', path=flaw.path, line=flaw.line)


def _splitters(
    langs: tuple[str, str], pretokenized: bool, libraries: Mapping[str, str]
) -> tuple[tuple[_Split, _Split], tuple[str, str]]:
    """What divides each side into words, and its name."""
    if unknown := [lang for lang in libraries if lang not in langs]:
        raise SettingError(f"segmenters names the language {unknown[0]!r}, the text is in {langs[0]} and {langs[1]}")
    if pretokenized:
        return (split_spaces, split_spaces), ("spaces", "spaces")
    source, target = (get_segmenter(lang, libraries.get(lang)) for lang in langs)
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
