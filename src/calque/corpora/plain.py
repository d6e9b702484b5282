"""Plain text in one language: a sentence a line."""

from __future__ import annotations

from itertools import islice
from os import PathLike

import pyarrow as pa

from calque.arrow import WORDS, from_words
from calque.corpora.lines import Flaw, read_lines
from calque.corpora.parallel import split_spaces
from calque.errors import InputError
from calque.segment import get_segmenter
from calque.text import Sentences

_BATCH = 65_536  # lines held as Python lists at a time


def read_sentences(
    path: str | PathLike[str], *, lang: str, pretokenized: bool = False, limit: int | None = None
) -> Sentences:
    """Read text, one sentence a line, packed (gzip, zstd, xz, bzip2) or not. A blank line is an empty sentence.

    Args:
        path: the file.
        lang: its language.
        pretokenized: words are what stands between spaces; otherwise `segment.split_words` divides the text.
        limit: read only so many lines.

    Raises:
        InputError: the file cannot be read, or a line of it is not text.
    """
    split = split_spaces if pretokenized else get_segmenter(lang).split
    lines, chunks = read_lines(path), []
    if limit is not None:
        lines = islice(lines, limit)
    while batch := list(islice(lines, _BATCH)):
        for line in batch:
            if isinstance(line, Flaw):
                raise InputError(line.fact, path=line.path, line=line.line)
        chunks.append(from_words(split(line) for line in batch if isinstance(line, str)))
    return Sentences(pa.chunked_array(chunks, type=WORDS), lang)
