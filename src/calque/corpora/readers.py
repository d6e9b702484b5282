"""Tables of text formats, with the reader of each format.

`READERS` has one table for each kind of text. To add a format, write its reader in a new file and
add a row to a table: the functions that read this kind of text, the option `--format` and the
documentation use the tables. A reader from another package needs no row; its name
`package.module:function` can be given wherever the name of a format is expected.

The arguments and the result of a reader depend on the kind of text:

- parallel (`read_parallel`): the path (or two paths, if the text is given as two files), and
  `langs`, the source and the target language. The reader returns an iterator over `lines.RawPair`,
  or a `lines.RawCorpus` or a `ParallelCorpus`.
- plain (`read_sentences`): the path. The reader returns an iterator over lines.
- tagged (`read_tagged`): the path, `lang` and `column`, which are the arguments of `read_tagged`.
  The reader returns an iterator over `stanzas.TaggedSentence`, or a `stanzas.RawTags`.
- labelled (`read_labelled`): the path. The reader returns an iterator over pairs of a line number
  and a row, which maps column names (`text`, or `premise` and `hypothesis`, and `label`) to cells.

Instead of an item that is unusable, a reader yields a `text_files.Flaw`, and instead of an item
that is not meant to be used, such as a header, a `lines.Omission` (only in parallel text). The
functions that call readers split texts into words, and raise errors for such items or count them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

from calque.corpora.file_head import FileHead
from calque.errors import InputError
from calque.named import FunctionTable, imported

AUTO = "auto"  # name that stands for the detected format


@dataclass(frozen=True)
class ReaderRow:
    """Table row that describes one text format.

    Attributes:
        target: import path of the reader, `package.module:function`.
        help: one-line description of the format.
        recognise: import path of a function that returns whether a `FileHead` is in this format;
            "" if the format is never detected. It should examine the content, and the suffix of the
            file name only if the content is ambiguous.
    """

    target: str
    help: str
    recognise: str = ""


def _row_of(name: str, reader: Callable[..., Any]) -> ReaderRow:
    summary = (inspect.getdoc(reader) or "").partition("\n\n")[0].replace("\n", " ")
    return ReaderRow(name, summary)


# A file is in the format of the first row that recognises it, so rows that accept nearly every text
# are at the end.

PARALLEL: FunctionTable[ReaderRow] = FunctionTable(
    "format",
    {
        "hub": ReaderRow(
            "calque.corpora.hub:read_parallel_rows",
            "data set on the Hugging Face hub or in a folder; Parquet, JSON Lines, CSV",
            "calque.corpora.hub:is_parallel_table",
        ),
        "arrow": ReaderRow(
            "calque.corpora.saved:read_saved",
            "parallel text saved by `ParallelCorpus.save`",
            "calque.corpora.saved:is_saved",
        ),
        "tmx": ReaderRow(
            "calque.corpora.tmx:read_tmx",
            "translation memory, TMX 1.1 to 1.4b",
            "calque.corpora.tmx:is_tmx",
        ),
        "moses": ReaderRow(
            "calque.corpora.moses:read_moses",
            "two files, in which line n of one file translates line n of the other",
        ),
        "fast-align": ReaderRow(
            "calque.corpora.separated:read_fast_align",
            "lines `source ||| target`",
            "calque.corpora.separated:is_fast_align",
        ),
        "tsv": ReaderRow(
            "calque.corpora.separated:read_tsv",
            "lines with a tab between source and target; further columns become metadata",
            "calque.corpora.separated:is_tsv",
        ),
    },
    row_of=_row_of,
)

PLAIN: FunctionTable[ReaderRow] = FunctionTable(
    "format",
    {
        "lines": ReaderRow(
            "calque.corpora.columns:text_lines",
            "one sentence per line; a column with numbers, separated by a tab, is ignored",
            "calque.corpora.readers:is_text",
        ),
    },
    row_of=_row_of,
)

TAGGED: FunctionTable[ReaderRow] = FunctionTable(
    "format",
    {
        "hub": ReaderRow(
            "calque.corpora.hub:read_tagged_rows",
            "data set with lists of words and tags, on the Hugging Face hub, in a folder or file",
            "calque.corpora.hub:is_data_set",
        ),
        "conllu": ReaderRow(
            "calque.corpora.conllu:read_parts_of_speech",
            "ten columns of CoNLL-U (Universal Dependencies), with parts of speech",
            "calque.corpora.conllu:is_conllu",
        ),
        "facebook": ReaderRow(
            "calque.corpora.facebook:read_facebook",
            "lines `intent⇥start:end:slot,…⇥text⇥locale⇥tokenization` (Schuster et al. 2019)",
            "calque.corpora.facebook:is_facebook",
        ),
        "numbered": ReaderRow(
            "calque.corpora.word_columns:read_numbered",
            "word number, word and tag in columns (UNER, xSID)",
            "calque.corpora.word_columns:is_numbered",
        ),
        "columns": ReaderRow(
            "calque.corpora.word_columns:read_columns",
            "word in the first and tag in the last column (CoNLL-2002, CoNLL-2003, WikiANN, "
            "PAN-X, MultiCoNER)",
            "calque.corpora.readers:is_text",
        ),
    },
    row_of=_row_of,
)

LABELLED: FunctionTable[ReaderRow] = FunctionTable(
    "format",
    {
        "hub": ReaderRow(
            "calque.corpora.hub:read_labelled_rows",
            "data set on the Hugging Face hub or in a folder; Parquet, CSV, a JSON list",
            "calque.corpora.hub:is_labelled_table",
        ),
        "jsonl": ReaderRow(
            "calque.corpora.label_lines:read_json",
            "one JSON object per line, with the column names of `header` as keys",
            "calque.corpora.label_lines:is_json",
        ),
        "header": ReaderRow(
            "calque.corpora.label_lines:read_header",
            "columns named in the first line, such as `premise⇥hypothesis⇥label` or `text⇥label` "
            "(XNLI, MultiNLI, SICK)",
            "calque.corpora.label_lines:has_header",
        ),
        "pairs": ReaderRow(
            "calque.corpora.label_lines:read_pairs",
            "lines `premise⇥hypothesis⇥label`",
            "calque.corpora.label_lines:is_pairs",
        ),
        "label-text": ReaderRow("calque.corpora.label_lines:read_label_text", "lines `label⇥text`"),
        "text-label": ReaderRow("calque.corpora.label_lines:read_text_label", "lines `text⇥label`"),
        "two-columns": ReaderRow(
            "calque.corpora.label_lines:read_two_columns",
            "`label-text` or `text-label`; the column with fewer distinct values has the labels",
            "calque.corpora.readers:is_text",
        ),
    },
    row_of=_row_of,
)

#: tables of formats by kind of text
READERS = {"parallel": PARALLEL, "plain": PLAIN, "tagged": TAGGED, "labelled": LABELLED}


def is_text(head: FileHead) -> bool:
    """Return True; recognises every file, for the last row of a table."""
    return True


def reader_of(
    table: FunctionTable[ReaderRow], path: str | PathLike[str], format: str | None = AUTO
) -> Callable[..., Any]:
    """Return the reader of a format, a name in the table or `package.module:function`; by default,
    the format of the file is detected.

    Raises:
        SettingError: the format is unknown.
        InputError: the format cannot be detected, see `recognised`.
    """
    if format is None or format == AUTO:
        format = recognised(table, path)
    return table.function(format)


def recognised(table: FunctionTable[ReaderRow], path: str | PathLike[str]) -> str:
    """Return the name of the format of a file.

    Raises:
        InputError: the file cannot be read, or is in no format of the table.
    """
    head = FileHead(path)
    for name, row in table.rows.items():
        if row.recognise and imported(row.recognise)(head):
            return name
    fact = "is in an unknown format"
    if head.xml_root is not None:
        fact = f"is XML with the root <{head.xml_root[:40]}>"
    raise InputError(
        f"{fact}, expected one of the formats {', '.join(table)}; convert the file, or write a "
        "reader and set format to package.module:function",
        path=path,
    )
