"""Readers for parallel text in all common formats, which return a `ParallelCorpus`."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, get_args

from calque.corpora.columns import HEADER, find_columns, peeked, text_lines
from calque.corpora.languages import TWO_LETTERS, two_languages
from calque.corpora.lines import BLANK, Item, Omission, RawCorpus, RawPair, Skipped
from calque.corpora.rows import PREFIX, read_dataset
from calque.corpora.spread import evenly_spaced, spread_over
from calque.corpora.store import TableWriter
from calque.corpora.tmx import languages_found, read_tmx
from calque.errors import CalqueWarning, InputError, SettingError, similar_path
from calque.named import is_hub_name
from calque.pairs import LINK_LIKE, WordPairs
from calque.progress import bar
from calque.segment import language_parts, splitter
from calque.text import ParallelCorpus
from calque.text_files import Flaw, find_packed, read_blocks, read_lines, unpacked_name

_MOST_COLUMNS = 100  # limit on extra columns, because a corrupt line can have a million

# : beginning of an XML document: declaration, document type and comments, and the name of the root
# element
_XML_ROOT = re.compile(
    r"((?:\s|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*(?:\[.*?\]\s*)?>)*)<([A-Za-z_][\w:.-]*)[\s/>]",
    re.DOTALL | re.IGNORECASE,
)

AnyPath = str | PathLike[str]
Format = Literal["tsv", "moses", "fast-align", "tmx", "arrow", "hub"]
FORMATS = get_args(Format)

_BY_NAME: dict[str, Format] = {".tmx": "tmx", ".tsv": "tsv", ".tab": "tsv"}
_BY_NAME |= {
    ".arrow": "arrow",
    ".parquet": "hub",
    ".jsonl": "hub",
    ".ndjson": "hub",
    ".json": "hub",
}


def find_format(
    path: AnyPath | tuple[AnyPath, AnyPath], langs: tuple[str, str], format: Format | None = None
) -> tuple[list[str], Format]:
    """Return the list of files that a path refers to, and their format."""
    if isinstance(path, tuple | list):
        if len(path) != 2 or format not in (None, "moses"):
            raise SettingError(
                f"expected one path, or two for the format 'moses', got {len(path)} and format "
                f"{format}"
            )
        return [fspath(path[0]), fspath(path[1])], "moses"
    name = fspath(path)
    if name.startswith(PREFIX):
        return [name], "hub"
    try:
        is_prefix = format == "moses" or (format is None and not os.path.exists(name))
        if is_prefix and len(pair := _moses_files(name, langs)) == 2:
            return pair, "moses"
        if format == "moses" or not os.path.exists(name):
            fact = (
                f"no such file, and no files {name}.{langs[0]} and "
                f"{name}.{langs[1]}{similar_path(name)}"
            )
            hint = (
                f" (a data set on the Hugging Face hub is written hub:{name})"
                if _may_be_on_hub(name)
                else ""
            )
            raise InputError(f"{fact}{hint}", path=path)
    except ValueError as error:  # the path contains a NUL
        raise InputError(f"not a valid path ({error})") from error
    if os.path.isdir(name) and format in (None, "hub"):
        return [name], "hub"
    return [name], format or _detect(name)


def _may_be_on_hub(name: str) -> bool:
    """Return whether a missing path has the form of a name on the Hugging Face hub, NAME or
    OWNER/NAME.
    """
    owner, slash, _ = name.partition("/")
    has_suffix = re.fullmatch(r"\.[A-Za-z]\w+", os.path.splitext(name)[1]) is not None
    return is_hub_name(name) and not has_suffix and not (slash and os.path.exists(owner))


def _moses_files(prefix: str, langs: tuple[str, str]) -> list[str]:
    """Find the files `PREFIX.LANG` of both languages, plain or compressed. For German, LANG can be
    de, deu or ger.
    """
    found = []
    for lang in langs:
        code = language_parts(lang)[0]
        tags = dict.fromkeys(
            (lang, code, *(three for three, two in TWO_LETTERS.items() if two == code))
        )
        found += [str(file) for tag in tags if (file := find_packed(f"{prefix}.{tag}"))][:1]
    return found


def _detect(path: str) -> Format:
    suffix = Path(unpacked_name(path)).suffix.lower()
    if suffix in _BY_NAME:
        return _BY_NAME[suffix]
    if suffix == ".po":
        raise InputError(
            "PO files are not supported; convert the file to TMX, e.g. with po2tmx", path=path
        )
    head = next(read_blocks(path), b"")
    if head.startswith(b"ARROW1"):
        return "arrow"
    if (root := _xml_root(head)) is not None:
        if root != "tmx":
            fact = (
                f"is XML with the root <{root[:40]}>, expected TMX (<tmx>) or text with a tab "
                "between the two sides"
            )
            raise InputError(f"{fact}; convert the file to TMX or TSV", path=path)
        return "tmx"
    for line in head.split(b"\n"):
        if b"\t" in line:
            return "tsv"
        if b"|||" in line:
            return "fast-align"
    return "hub" if suffix == ".csv" else "tsv"


def _xml_root(head: bytes) -> str | None:
    """Return the name of the root element, without its namespace, if a file that begins with `head`
    is XML or HTML.
    """
    match = _XML_ROOT.match(head[:65_536].decode("utf-8", "replace").replace("\0", ""))
    if match is None:
        return None
    prolog, root = match.groups()
    first_line = head.lstrip().partition(b"\n")[0]
    is_text = not prolog.strip() and (
        b"\t" in first_line or b"|||" in first_line
    )  # `<b>Hello</b>⇥<b>Hallo</b>`
    return None if is_text else root.rpartition(":")[2]


def _open(paths: list[str], langs: tuple[str, str], format: Format) -> RawCorpus:
    if format == "hub":
        return read_dataset(paths[0], langs)
    if format == "moses":
        return RawCorpus(_read_moses(paths[0], paths[1], langs))
    if format == "tmx":
        found: set[str] = set()
        return RawCorpus(
            read_tmx(paths[0], langs, found=found), remedy=partial(languages_found, found, langs)
        )
    return _rows(paths[0], langs, "\t" if format == "tsv" else "|||")


# -- one sentence pair per line
# ------------------------------------------------------------------------------------------
def _rows(path: str, langs: tuple[str, str], separator: str) -> RawCorpus:
    """Read the sentence pairs of a file with one pair per line, and find the columns of the two
    texts.
    """
    head, lines = peeked(read_lines(path))
    rows = [
        (number, line.split(separator, _MOST_COLUMNS)) for number, line in head if separator in line
    ]
    columns = find_columns(rows, langs, path=path)
    if (message := columns.message()) is not None:
        warnings.warn(CalqueWarning(f"{path}: {message}"), stacklevel=4)

    def items() -> Iterator[Item]:
        for number, line in enumerate(lines, 1):
            if number == columns.header:
                yield Omission(number, HEADER)
            elif columns.texts == (0, 1) or isinstance(line, Flaw):
                yield _pair(line, number, separator)
            else:
                yield _pair_from_columns(line, number, separator, columns.texts)

    return RawCorpus(items(), texts=columns.texts)


def _pair_from_columns(
    line: str, number: int, separator: str, texts: tuple[int, int]
) -> RawPair | Flaw:
    """Return the sentence pair in two columns of a line, or a `Flaw` if there is no valid pair."""
    if not line or line.isspace():
        return _pair(line, number, separator)
    cells = line.split(separator, _MOST_COLUMNS)
    if len(cells) <= max(texts):
        count = "one column" if len(cells) == 1 else f"{len(cells)} columns"
        fact = (
            f"{count}, expected at least {max(texts) + 1}, as in the first lines; is a column "
            "missing?"
        )
        return Flaw(number, "missing column", fact)
    extra = [cell for column, cell in enumerate(cells) if column not in texts]
    return RawPair(number, cells[texts[0]], cells[texts[1]], extra)


def _pair(line: str | Flaw, number: int, separator: str) -> RawPair | Flaw:
    """Return the sentence pair in a line, or a `Flaw` if there is no valid pair; quotes have no
    special meaning.
    """
    if isinstance(line, Flaw):
        return line
    source, divided, rest = line.partition(separator)
    if not divided:
        if not line or line.isspace():
            return Flaw(number, BLANK, "the line is blank, expected a sentence pair")
        fact = (
            "one column, expected source and target separated by "
            f"{'a tab' if separator == chr(9) else separator}"
        )
        return Flaw(
            number, "missing column", f"{fact} (two files must be passed as a pair of paths)"
        )
    if separator not in rest:
        return RawPair(number, source, rest)
    target, *extra = rest.split(separator, _MOST_COLUMNS)
    if len(extra) < _MOST_COLUMNS:
        return RawPair(number, source, target, extra)
    fact = (
        f"more than {_MOST_COLUMNS} columns, expected source and target; is there a separator in "
        "the text?"
    )
    return Flaw(number, "too many columns", fact)


def _read_moses(source: str, target: str, langs: tuple[str, str]) -> Iterator[Item]:
    """Read two line-aligned files."""
    sides = zip_longest(text_lines(source, one_side=True), text_lines(target, one_side=True))
    pairs = enumerate(sides, 1)
    for number, (left, right) in pairs:
        if number == 1 and [left, right] == list(langs):
            yield Omission(number, HEADER)
            continue
        if (
            left is None or right is None
        ):  # one file has ended; blank lines at the end of the other file are allowed
            rest = [(number, left or right), *((n, one or other) for n, (one, other) in pairs)]
            if all(not line or (isinstance(line, str) and line.isspace()) for _, line in rest):
                return
            shorter, longer = (source, target) if left is None else (target, source)
            fact = (
                f"{number - 1} lines, but {fspath(longer)} has {rest[-1][0]}, expected the same "
                "number"
            )
            raise InputError(f"{fact}; was only one of the files filtered?", path=shorter)
        if isinstance(left, Flaw):
            yield left
        elif isinstance(right, Flaw):
            yield right
        elif not left.strip() and not right.strip():
            yield Flaw(
                number, BLANK, "the line is blank in both files, expected a sentence pair", source
            )
        elif not right.strip():
            yield Flaw(number, "empty target", "the target side is empty, expected text", target)
        else:
            yield RawPair(number, left, right)


OnError = Literal["raise", "skip", "blank"]


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
    """Read parallel text and segment it into words.

    Text files may be compressed with gzip, zstd, xz or bzip2. Up to 32 MB of words are kept in
    memory; larger data is written to a memory-mapped temporary file (in `TMPDIR`) that is deleted
    when the process ends.

    Args:
        path: one file, or two line-aligned files (Moses). A prefix stands for the files `prefix.en`
            and `prefix.de`; `hub:NAME` or a folder stands for a data set (see `rows.open_rows`).
        langs: source and target language; in TMX files and data sets, they also determine which
            texts are read.
        format: format of the file: `tsv` (`source⇥target`; further columns become the metadata
            `column_3`, `column_4` …; columns with only numbers may precede the texts, and the first
            row may be a header, see `columns.find_columns`), `moses`, `fast-align` (`source |||
            target`), `tmx`, `arrow` (from `ParallelCorpus.save`) or `hub` (data sets, Parquet, JSON
            Lines, CSV). By default, the format is detected from the name and the first lines.
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
    if on_error not in ("raise", "skip", "blank"):
        raise SettingError(f"on_error must be 'raise', 'skip' or 'blank', got {on_error!r}")
    if format is not None and format not in FORMATS:
        raise SettingError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    if limit is not None and limit < 0:
        raise SettingError(f"limit must be at least 0, got {limit}")
    paths, format = find_format(path, langs, format)
    if format == "arrow":
        return _saved(paths[0], langs, limit)
    split = [splitter(lang, pretokenized=pretokenized) for lang in langs]
    source, skipped = _open(paths, langs, format), Skipped()
    writer = TableWriter(
        source.columns, lines=on_error == "skip" or limit is not None, texts=source.texts
    )
    items = source.items if on_error == "blank" else _without_blank_end(source.items)
    with bar(None, unit=" lines", show=progress) as progress_bar:
        for item in items if limit is None else _limited(items, limit, on_error, skipped, paths[0]):
            row = _segmented(item, split, writer.width) if isinstance(item, RawPair) else item
            if isinstance(row, Flaw) and on_error == "raise":
                raise row.error(paths[0], 'read with on_error="skip"')
            if isinstance(row, Flaw | Omission):
                skipped.count(row, paths[0])
                if on_error == "blank" and (isinstance(row, Flaw) or row.reason == HEADER):
                    writer.add((), (), (), row.line, 0)
            else:
                writer.add(*row)
            progress_bar.update()
    if not writer.n_rows and limit != 0:
        raise _nothing_read(source, skipped, paths[0])
    return ParallelCorpus(
        writer.finish(), langs, skipped=skipped.counts, first_skipped=skipped.first, path=paths[0]
    )


def check_parallel(path: AnyPath, *, langs: tuple[str, str]) -> None:
    """Read parallel text up to its first usable sentence pair.

    Raises:
        InputError: the file cannot be read, or contains no sentence pair in these languages.
    """
    paths, format = find_format(path, two_languages(langs))
    if format == "arrow":
        _saved(paths[0], langs, None)
        return
    split = [splitter(lang, pretokenized=True) for lang in langs]
    source, skipped = _open(paths, langs, format), Skipped()
    for item in source.items:
        row = _segmented(item, split, None) if isinstance(item, RawPair) else item
        if not isinstance(row, Flaw | Omission):
            return
        skipped.count(row, paths[0])
    raise _nothing_read(source, skipped, paths[0])


def _nothing_read(source: RawCorpus, skipped: Skipped, path: str) -> InputError:
    why = str(skipped) or "the file is empty"
    return InputError(f"no sentence pair could be read: {why}{source.remedy()}", path=path)


def _limited(
    items: Iterable[Item], limit: int, on_error: OnError, skipped: Skipped, path: str
) -> Iterable[Item]:
    """Return `limit` evenly spaced items; items that `read_parallel` would skip anyway are counted
    and not chosen.
    """

    def usable() -> Iterator[Item]:
        for item in items:
            if isinstance(item, Omission) or (isinstance(item, Flaw) and on_error == "skip"):
                skipped.count(item, path)
            elif isinstance(item, Flaw) and on_error == "raise":
                raise item.error(path, 'read with on_error="skip"')
            else:
                yield item

    return evenly_spaced(usable(), limit)


def _without_blank_end(items: Iterable[Item]) -> Iterator[Item]:
    """Yield all items except blank lines at the end."""
    blanks = []
    for item in items:
        if isinstance(item, Flaw) and item.reason == BLANK:
            blanks.append(item)
        else:
            yield from blanks
            yield item
            blanks = []


def _segmented(
    pair: RawPair, split: Sequence[Callable[[str], Sequence[str]]], width: int | None
) -> tuple[Sequence[str], Sequence[str], Sequence[str | None], int, int] | Flaw:
    """Return a row for `TableWriter.add`, or a `Flaw` if the pair is unusable."""
    source, target = split[0](pair.source), split[1](pair.target)
    if not source or not target:
        side = "target" if source else "source"
        return Flaw(pair.line, f"empty {side}", f"the {side} side has no words, expected text")
    if width is not None and len(pair.extra) > width:
        fact = f"{len(pair.extra) + 2} columns, expected at most {width + 2} as in the first lines"
        return Flaw(pair.line, "too many columns", f"{fact}; is there a separator in the text?")
    return source, target, pair.extra, pair.line, len(pair.source) + len(pair.target)


def _saved(path: str, langs: tuple[str, str], limit: int | None) -> ParallelCorpus:
    corpus = ParallelCorpus.open(path)
    if corpus.langs == (langs[1], langs[0]):
        corpus = corpus.swapped()
    if corpus.langs != langs:
        saved, asked = "-".join(corpus.langs), "-".join(langs)
        raise InputError(
            f"langs must be {saved}, the languages of the saved corpus, got {asked}", path=path
        )
    chosen = spread_over(len(corpus), limit)
    return corpus if chosen is None else corpus.take(chosen)


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
