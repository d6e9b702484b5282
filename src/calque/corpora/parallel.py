"""Read parallel text in all formats of the table `readers.PARALLEL`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike, fspath
from typing import Literal, NamedTuple, get_args

from calque.corpora.by_name import PREFIX
from calque.corpora.columns import HEADER
from calque.corpora.file_head import FileHead
from calque.corpora.languages import two_languages
from calque.corpora.lines import BLANK, Item, Omission, RawCorpus, RawPair, Skipped
from calque.corpora.moses import moses_files
from calque.corpora.readers import AUTO, PARALLEL, reader_of
from calque.corpora.spread import evenly_spaced, spread_over
from calque.corpora.store import TableWriter
from calque.errors import InputError, SettingError, similar_path
from calque.named import is_hub_name, is_path
from calque.pairs import LINK_LIKE, WordPairs
from calque.progress import bar
from calque.segment import splitter
from calque.text import ParallelCorpus
from calque.text_files import Flaw

AnyPath = str | PathLike[str]
OnError = Literal["raise", "skip", "blank"]
# arguments of `TableWriter.add`
Row = tuple[Sequence[str], Sequence[str], Sequence[str | None], int, int]
_REMEDY = 'read with on_error="skip"'  # for an unusable line
#: formats that calque does not read, by suffix, with the remedy
_UNSUPPORTED = {".po": "PO files are not supported; convert the file to TMX, e.g. with po2tmx"}


# -- files -----------------------------------------------------------------------------------------
class Source(NamedTuple):
    """Files of a parallel text, and their format; the format is `AUTO` if it must be detected."""

    paths: list[str]
    format: str


def find_source(
    path: AnyPath | tuple[AnyPath, AnyPath], langs: tuple[str, str], format: str | None = None
) -> Source:
    """Return the files that a path refers to, and their format as far as the path shows it.

    Raises:
        InputError: there is no such file, or its format is not supported.
        SettingError: the format is unknown, or does not consist of two files although two paths
            were given.
    """
    if format is None:
        format = AUTO
    elif format != AUTO:
        PARALLEL.function(format)  # reports an unknown format before a missing file
    if isinstance(path, tuple | list):
        return _two_files(path, format)
    name = fspath(path)
    if name.startswith(PREFIX):
        return Source([name], format if is_path(format) else "hub")
    try:
        exists = os.path.exists(name)
        pair = moses_files(name, langs)
    except ValueError as error:  # the path contains a NUL
        raise InputError(f"not a valid path ({error})") from error
    # A path that does not exist may be the common prefix of two files.
    if format == "moses" or not exists:
        if len(pair) == 2 and format in (AUTO, "moses"):
            return Source(pair, "moses")
        raise _missing_file(name, langs)
    unsupported = _UNSUPPORTED.get(FileHead(name).suffix)
    if format == AUTO and unsupported is not None:
        raise InputError(unsupported, path=path)
    return Source([name], format)


def _two_files(paths: Sequence[AnyPath], format: str) -> Source:
    if len(paths) != 2 or not (format in (AUTO, "moses") or is_path(format)):
        raise SettingError(
            f"expected one path, or two for the format 'moses', got {len(paths)} and format "
            f"{format}"
        )
    return Source([fspath(path) for path in paths], "moses" if format == AUTO else format)


def _missing_file(name: str, langs: tuple[str, str]) -> InputError:
    fact = f"no such file, and no files {name}.{langs[0]} and {name}.{langs[1]}{similar_path(name)}"
    if _may_be_on_hub(name):
        fact += f" (a data set on the Hugging Face hub is written hub:{name})"
    return InputError(fact, path=name)


def _may_be_on_hub(name: str) -> bool:
    """Return whether a missing path has the form of a name on the Hugging Face hub, NAME or
    OWNER/NAME.
    """
    owner, slash, _ = name.partition("/")
    has_suffix = re.fullmatch(r"\.[A-Za-z]\w+", os.path.splitext(name)[1]) is not None
    is_local = bool(slash) and os.path.exists(owner)
    return is_hub_name(name) and not has_suffix and not is_local


def _opened(source: Source, langs: tuple[str, str]) -> RawCorpus | ParallelCorpus:
    """Call the reader of a text."""
    reader = reader_of(PARALLEL, source.paths[0], source.format)
    content = reader(*source.paths, langs=langs)
    return content if isinstance(content, RawCorpus | ParallelCorpus) else RawCorpus(content)


# -- sentence pairs --------------------------------------------------------------------------------
def read_parallel(
    path: AnyPath | tuple[AnyPath, AnyPath],
    *,
    langs: tuple[str, str],
    format: str | None = None,
    pretokenized: bool = False,
    on_error: OnError = "raise",
    limit: int | None = None,
    progress: bool = False,
) -> ParallelCorpus:
    """Read parallel text and segment it into words.

    Text files may be compressed with gzip, zstd, xz or bzip2. Up to 32 MB of words are kept in
    memory; larger data is written to a memory-mapped temporary file (in `TMPDIR`) that is deleted
    when the process ends.

    Args:
        path: one file, or two line-aligned files (Moses). A prefix stands for the files `prefix.en`
            and `prefix.de`; `hub:NAME` or a folder stands for a data set (see `rows.open_rows`).
        langs: source and target language; in TMX files and data sets, they also determine which
            texts are read.
        format: a format of the table `readers.PARALLEL`, or a reader as `package.module:function`:
            `tsv` (`source⇥target`; further columns become the metadata `column_3`, `column_4` …;
            columns with only numbers may precede the texts, and the first row may be a header, see
            `columns.find_columns`), `moses`, `fast-align` (`source ||| target`), `tmx`, `arrow`
            (from `ParallelCorpus.save`) or `hub` (data sets, Parquet, JSON Lines, CSV). By default
            (`auto`), the format is detected from the first lines and the name.
        pretokenized: whether words are already separated by spaces; otherwise `segment.split_words`
            segments the text.
        on_error: how to handle lines without a usable pair (a missing or empty side, invalid UTF-8,
            or a NUL character). `raise` raises an error that gives the line number. `skip` skips
            the line, counts it in `corpus.skipped`, and keeps the line number of every pair in
            `corpus.lines`. `blank` counts the line and replaces it with a pair of empty sentences,
            so pair i is always line i + 1. In every mode, blank lines at the end of a file are
            allowed, a header is counted, and TMX units that lack a language are skipped and
            counted.
        limit: maximum number of pairs to keep, evenly spaced over the whole file, because the first
            pairs often come from one source. Unless all pairs are kept, `corpus.lines` contains
            their line numbers.
        progress: whether to show a progress bar on stderr.

    Raises:
        InputError: the file cannot be read or contains no pair, or, with `raise`, a line contains
            no usable pair.
        SettingError: an argument has an invalid value.
        MissingExtraError: a library that the format requires is not installed.
    """
    langs = two_languages(langs)
    _check_settings(on_error, limit)
    source = find_source(path, langs, format)
    content = _opened(source, langs)
    # A saved corpus is already segmented, and its unusable lines were counted when it was saved.
    if isinstance(content, ParallelCorpus):
        chosen = spread_over(len(content), limit)
        return content if chosen is None else content.take(chosen)
    path, skipped = source.paths[0], Skipped()
    split = [splitter(lang, pretokenized=pretokenized) for lang in langs]
    keep_lines = on_error == "skip" or limit is not None
    writer = TableWriter(content.columns, lines=keep_lines, texts=content.texts)
    with bar(None, unit=" lines", show=progress) as progress_bar:
        for item in _chosen_items(content.items, on_error, limit, skipped, path):
            row = _segmented(item, split, writer.width)
            if isinstance(row, Flaw | Omission):
                _leave_out(row, on_error, skipped, path)
                row = _blank_row(row, on_error)
            if row is not None:
                writer.add(*row)
            progress_bar.update()
    if not writer.n_rows and limit != 0:
        raise _nothing_read(content, skipped, path)
    return ParallelCorpus(
        writer.finish(),
        langs,
        skipped=skipped.counts,
        first_skipped=skipped.first,
        omitted=skipped.omitted,
        path=path,
    )


def _check_settings(on_error: OnError, limit: int | None) -> None:
    """Raise a `SettingError` if a setting of `read_parallel` has an invalid value."""
    if on_error not in get_args(OnError):
        raise SettingError(f"on_error must be 'raise', 'skip' or 'blank', got {on_error!r}")
    if limit is not None and limit < 0:
        raise SettingError(f"limit must be at least 0, got {limit}")


def _leave_out(item: Flaw | Omission, on_error: OnError, skipped: Skipped, path: str) -> None:
    """Count an unusable item, or raise an error if `on_error` is "raise"; an `Omission` is always
    counted.
    """
    if isinstance(item, Flaw) and on_error == "raise":
        raise item.error(path, _REMEDY)
    skipped.count(item, path)


def _blank_row(item: Flaw | Omission, on_error: OnError) -> Row | None:
    """Return the row that replaces an unusable item, or None if the item is left out."""
    # Omitted units of TMX files have no line of their own, unlike a header.
    has_line = isinstance(item, Flaw) or item.reason == HEADER
    return ((), (), (), item.line, 0) if on_error == "blank" and has_line else None


def check_parallel(path: AnyPath, *, langs: tuple[str, str], format: str | None = None) -> None:
    """Read parallel text up to its first usable sentence pair.

    Raises:
        InputError: the file cannot be read, or contains no sentence pair in these languages.
    """
    langs = two_languages(langs)
    source = find_source(path, langs, format)
    content = _opened(source, langs)
    if isinstance(content, ParallelCorpus):
        return
    split = [splitter(lang, pretokenized=True) for lang in langs]
    skipped = Skipped()
    for item in content.items:
        row = _segmented(item, split, None)
        if not isinstance(row, Flaw | Omission):
            return
        skipped.count(row, source.paths[0])
    raise _nothing_read(content, skipped, source.paths[0])


def _nothing_read(content: RawCorpus, skipped: Skipped, path: str) -> InputError:
    reasons = str(skipped) or "the file is empty"
    return InputError(f"no sentence pair could be read: {reasons}{content.remedy()}", path=path)


def _chosen_items(
    items: Iterable[Item], on_error: OnError, limit: int | None, skipped: Skipped, path: str
) -> Iterable[Item]:
    """Return the items to read: without blank lines at the end, and with at most `limit` pairs."""
    if on_error != "blank":
        items = _without_blank_end(items)
    if limit is not None:
        items = evenly_spaced(_usable(items, on_error, skipped, path), limit)
    return items


def _usable(
    items: Iterable[Item], on_error: OnError, skipped: Skipped, path: str
) -> Iterator[Item]:
    """Yield the items that may be chosen if there is a limit. Items that `read_parallel` would skip
    are counted, and do not count towards the limit.
    """
    for item in items:
        if isinstance(item, Omission) or (isinstance(item, Flaw) and on_error != "blank"):
            _leave_out(item, on_error, skipped, path)
        else:
            yield item


def _without_blank_end(items: Iterable[Item]) -> Iterator[Item]:
    """Yield all items except blank lines at the end."""
    blanks = []  # blank lines that have not been followed by other items
    for item in items:
        if isinstance(item, Flaw) and item.reason == BLANK:
            blanks.append(item)
        else:
            yield from blanks
            yield item
            blanks = []


def _segmented(
    pair: Item, split: Sequence[Callable[[str], Sequence[str]]], width: int | None
) -> Row | Flaw | Omission:
    """Return a row for `TableWriter.add`, or a `Flaw` if the pair is unusable. Items that are not a
    pair are returned unchanged.

    Args:
        width: maximum number of extra columns; None if it is unknown.
    """
    if not isinstance(pair, RawPair):
        return pair
    source, target = split[0](pair.source), split[1](pair.target)
    if not source or not target:
        side = "target" if source else "source"
        return Flaw(pair.line, f"empty {side}", f"the {side} side has no words, expected text")
    if width is not None and len(pair.extra) > width:
        fact = (
            f"{len(pair.extra) + 2} columns, expected at most {width + 2} as in the first lines; "
            "is there a separator in the text?"
        )
        return Flaw(pair.line, "too many columns", fact)
    return source, target, pair.extra, pair.line, len(pair.source) + len(pair.target)


# -- gold links ------------------------------------------------------------------------------------
def _column_of_links(corpus: ParallelCorpus) -> str:
    """Return the name of the first metadata column that begins with word links, or `column_3` if
    there is none.
    """
    for name in corpus.metadata_names:
        value = next((text for text in corpus.metadata(name) if text and not text.isspace()), "")
        if LINK_LIKE.fullmatch(value.split(maxsplit=1)[0] if value else ""):
            return name
    return "column_3"


def gold_links(
    corpus: ParallelCorpus,
    *,
    column: str | None = None,
    one_based: bool | None = None,
    check: bool = True,
) -> WordPairs:
    """Return the word links in a metadata column (such as `0-0 1?2`); `check` also verifies that
    the linked words exist.

    Args:
        column: name of the column; default: the first column that begins with word links, or
            `column_3` if there is none.
        one_based: see `WordPairs.parse`.
        check: whether to check that the linked words exist.

    Raises:
        SettingError: the column does not exist.
        InputError: a line contains an invalid link or, with `check`, a link to a word that does not
            exist.
    """
    lines = [text or "" for text in corpus.metadata(column or _column_of_links(corpus))]
    try:
        pairs = WordPairs.parse(lines, one_based=one_based, path=corpus.path)
        return pairs.check(corpus, path=corpus.path) if check else pairs
    except InputError as error:
        numbers = corpus.lines
        line = error.line if numbers is None or error.line is None else int(numbers[error.line - 1])
        raise InputError(error.fact, path=error.path, line=line) from error
