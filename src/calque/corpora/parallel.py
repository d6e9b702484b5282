"""Parallel text of every common format, as a `ParallelCorpus`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from calque.corpora.formats import FORMATS, AnyPath, Format, find_format, open_raw
from calque.corpora.lines import BLANK, Flaw, Omission, RawPair, Skipped
from calque.corpora.store import TableWriter
from calque.errors import InputError, SettingError
from calque.pairs import WordPairs
from calque.progress import bar
from calque.segment import get_segmenter, split_spaces
from calque.text import ParallelCorpus

OnError = Literal["raise", "skip", "blank"]
_Split = Callable[[str], Sequence[str]]


def read_parallel(
    path: AnyPath | tuple[AnyPath, AnyPath],
    *,
    langs: tuple[str, str],
    format: Format | None = None,
    pretokenized: bool = False,
    on_error: OnError = "raise",
    limit: int | None = None,
    progress: bool = False,
) -> ParallelCorpus:
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
        reading.writer.finish(),
        langs,
        skipped=skipped.counts,
        first_skipped=skipped.first,
        segmenters=names,
        path=paths[0],
    )


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
