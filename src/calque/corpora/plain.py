"""Readers for plain text (one sentence per line) and dictionaries (one entry per line)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import islice
from os import PathLike, fspath

import pyarrow as pa

from calque.annotated import Dictionary
from calque.corpora.columns import HEADER, Entries, peeked
from calque.corpora.languages import two_languages
from calque.corpora.lines import Losses, Omission, OnError
from calque.corpora.readers import AUTO, PLAIN, reader_of
from calque.corpora.spread import evenly_spaced
from calque.corpora.store import Batches
from calque.errors import CalqueWarning, InputError
from calque.segment import splitter
from calque.storage import WORDS, from_words
from calque.text import Sentences
from calque.text_files import Flaw, read_lines, readable

_BATCH = 16_384  # number of lines held as Python strings at a time


def read_sentences(
    path: str | PathLike[str],
    *,
    lang: str,
    format: str = AUTO,
    pretokenized: bool = False,
    limit: int | None = None,
) -> Sentences:
    """Read text with one sentence per line, plain or compressed (gzip, zstd, xz, bzip2). A blank
    line is an empty sentence.

    Up to 32 MB of words are kept in memory; larger text is written to a memory-mapped temporary
    file (in `TMPDIR`).

    Args:
        path: path of the file.
        lang: language of the text.
        format: a format of the table `readers.PLAIN`, or a reader as `package.module:function`;
            `auto` detects the format.
        pretokenized: whether words are already separated by spaces; otherwise `segment.split_words`
            segments the text.
        limit: maximum number of lines to keep, evenly spaced over the whole file.

    Raises:
        InputError: the file cannot be read, contains an unreadable line, or contains no words.
        SettingError: the format is unknown.
    """
    schema = pa.schema([("words", WORDS)])
    batches = Batches(schema)
    blocks = stream_sentences(
        path, lang=lang, format=format, pretokenized=pretokenized, limit=limit, block=_BATCH
    )
    for sentences in blocks:
        for words in sentences.chunks():
            batches.add(pa.RecordBatch.from_arrays([words], schema=schema))
    return Sentences(batches.finish()["words"], lang)


def stream_sentences(
    path: str | PathLike[str],
    *,
    lang: str,
    format: str = AUTO,
    pretokenized: bool = False,
    limit: int | None = None,
    block: int = _BATCH,
) -> Iterator[Sentences]:
    """Yield the sentences of a file in blocks, for text that does not fit in memory.

    Args:
        path, lang, format, pretokenized, limit: as in `read_sentences`.
        block: number of lines per block; the last block can be shorter.
    """
    split = splitter(lang, pretokenized=pretokenized)
    lines = readable(reader_of(PLAIN, path, format)(path))
    chosen_lines = iter(evenly_spaced(lines, limit))
    has_words = limit == 0  # a text of which no line is wanted needs no words
    while batch := list(islice(chosen_lines, block)):
        words = [split(line) for line in batch]
        has_words = has_words or any(words)
        yield Sentences(from_words(words), lang)
    if not has_words:
        where = "the file" if limit is None else f"{limit:,} evenly spaced lines of the file"
        raise InputError(
            f"no words in {where}, expected text with one sentence per line", path=path
        )


def read_dictionary(
    path: str | PathLike[str], *, langs: tuple[str, str], on_error: OnError = "raise"
) -> Dictionary:
    """Read a plain or compressed dictionary (gzip, zstd, xz, bzip2) with one word and its
    translation per line.

    The words are separated by a tab (XLing-Eval, Glavaš et al. 2019) or, in lines without a tab, by
    the first space (MUSE, Conneau et al. 2018). Surrounding spaces and blank lines are ignored, and
    so are columns with only numbers, such as scores. A header is skipped and counted (see
    `columns.find_columns`).

    Args:
        path: path of the file.
        langs: languages of the two columns.
        on_error: how to handle lines that are not word pairs: `raise` an error, or `skip` and count
            them (`SkippedWarning`).

    Raises:
        InputError: the file cannot be read or contains no entries; or, with `raise`, a line does
            not contain two words or is not valid UTF-8.
        SettingError: an argument has an invalid value.
    """
    langs = two_languages(langs)
    losses = Losses(path, on_error, "entries")
    head, lines = peeked(read_lines(path))
    entries = Entries(head, langs, path=path)
    message = entries.message()
    if message is not None:
        warnings.warn(CalqueWarning(f"{fspath(path)}: {message}"), stacklevel=2)
    source, target = [], []  # words and their translations
    for number, line in enumerate(lines, 1):
        if number == entries.header:
            losses.take(Omission(number, HEADER))
            continue
        if isinstance(line, Flaw):
            losses.take(line)
            continue
        if not line.strip():
            continue
        pair = entries.of(line, number)
        if isinstance(pair, Flaw):
            losses.take(pair)
        else:
            source.append(pair[0])
            target.append(pair[1])
    losses.settle(len(source))
    return Dictionary(tuple(source), tuple(target), langs, fspath(path))
