"""Texts in data sets on the Hugging Face hub, in folders with data sets, and in tables (Parquet,
JSON Lines, CSV): the format `hub` of parallel, tagged and labelled text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from os import PathLike
from typing import NamedTuple, cast

from calque.corpora import by_name
from calque.corpora.columns import TEXT_COLUMNS
from calque.corpora.file_head import FileHead
from calque.corpora.languages import best_matches
from calque.corpora.lines import RawCorpus, RawPair
from calque.corpora.rows import TABLES, open_rows
from calque.corpora.separated import first_separator
from calque.corpora.stanzas import TaggedSentence, missing_value
from calque.errors import InputError
from calque.text_files import Flaw

#: label of texts on which the annotators did not agree, in SNLI, MultiNLI and XNLI
NO_LABEL = "-"
# Column names in published data sets of tagged text, in order of preference.
_WORDS = ("tokens", "words")
_TAGS = ("ner_tags", "tags", "upos", "pos_tags", "slot_tags", "slots", "labels")
_INTENTS = ("intent", "intents")


def is_data_set(head: FileHead) -> bool:
    """Return whether a path is a folder, a name on the hub, or a table by its suffix."""
    return head.is_data_set or head.suffix in TABLES


# -- parallel text ---------------------------------------------------------------------------------
class TextColumn(NamedTuple):
    """Column that contains a text, or that maps languages to texts if `language` is not None."""

    name: str
    language: str | None = None


def is_parallel_table(head: FileHead) -> bool:
    """Return whether a path is a data set of parallel text. Files with the suffix .csv that contain
    a tab or `|||` are read as lines instead.
    """
    if head.suffix != ".csv" or head.is_data_set:
        return is_data_set(head)
    return head.xml_root is None and first_separator(head.block) is None


def read_parallel_rows(path: str | PathLike[str], langs: tuple[str, str]) -> RawCorpus:
    """Read parallel text from a path that `open_rows` supports, or from a name in `by_name`, such
    as `hub:tatoeba`.

    The text is read from a column of translations (`{"en": …, "de": …}`) or from columns named
    after the languages (`en`, `sentence_en`), and otherwise from the columns `source` and `target`,
    `sentence1` and `sentence2`, or similar. Other columns with text or numbers become metadata.

    Raises:
        InputError: the data set cannot be read, or has no such columns.
    """
    sides = by_name.sides(path, langs)
    if sides is not None:
        return RawCorpus(_pairs_of_data_sets(sides[0], sides[1], path), [])
    data = open_rows(path)
    if not data.first:
        return RawCorpus([], [])
    source, target = _text_columns(data.first, langs, path)
    # Lists, objects and bytes cannot be written to a column of strings.
    metadata_names = []
    for name, values in data.first.items():
        is_nested = any(isinstance(value, list | dict | bytes) for value in values)
        if name not in (source.name, target.name) and not is_nested:
            metadata_names.append(name)
    pairs = (_pair(number, row, row, source, target, metadata_names) for number, row in data.rows)
    return RawCorpus(pairs, metadata_names)


def _text_columns(
    first_values: Mapping[str, list], langs: tuple[str, str], path: str | PathLike[str]
) -> tuple[TextColumn, TextColumn]:
    """Find the columns of the two texts, given the first values of each column."""
    columns = _column_of_translations(first_values, langs)
    if columns is not None:
        return columns
    names = []
    for name, values in first_values.items():
        if any(isinstance(value, str) for value in values):
            names.append(name)
    columns = _columns_by_language(names, langs)
    if columns is not None:
        return columns
    for source, target in TEXT_COLUMNS:
        if source in names and target in names:
            return TextColumn(source), TextColumn(target)
    raise InputError(
        f"has the columns {', '.join(first_values)}; expected a column of translations or columns "
        f"named {langs[0]} and {langs[1]}, or source and target: rename the columns",
        path=path,
    )


def _column_of_translations(
    first_values: Mapping[str, list], langs: tuple[str, str]
) -> tuple[TextColumn, TextColumn] | None:
    """Find a column that maps languages to texts, `{"en": …, "de": …}`."""
    for name, values in first_values.items():
        translations = next((value for value in values if isinstance(value, dict)), {})
        tags = best_matches(langs, translations)
        if tags is not None:
            return TextColumn(name, tags[0]), TextColumn(name, tags[1])
    return None


def _columns_by_language(
    names: Sequence[str], langs: tuple[str, str]
) -> tuple[TextColumn, TextColumn] | None:
    """Find two columns that are named after the languages: `en`, or `sentence_eng_Latn` as in
    FLORES.
    """
    for prefix in ("", "sentence_", "text_"):
        by_language = {name.removeprefix(prefix): name for name in names if name.startswith(prefix)}
        tags = best_matches(langs, by_language)
        if tags is not None:
            return TextColumn(by_language[tags[0]]), TextColumn(by_language[tags[1]])
    return None


def _pair(
    number: int,
    source_row: Mapping[str, object],
    target_row: Mapping[str, object],
    source: TextColumn,
    target: TextColumn,
    metadata_names: Sequence[str] = (),
) -> RawPair | Flaw:
    """Return the sentence pair in two rows, which are the same row unless the texts come from two
    data sets.
    """
    texts = []
    for side, row, column in (("source", source_row, source), ("target", target_row, target)):
        text = row.get(column.name)
        if column.language is not None:
            text = text.get(column.language) if isinstance(text, dict) else None
        if not isinstance(text, str):
            return Flaw(number, "missing value", f"the {side} side is {text!r:.40}, expected text")
        texts.append(text)
    metadata: list[str | None] = []
    for name in metadata_names:
        value = source_row.get(name)
        metadata.append(None if value is None else str(value))
    return RawPair(number, texts[0], texts[1], metadata)


def _pairs_of_data_sets(
    source: tuple[str, str], target: tuple[str, str], path: str | PathLike[str]
) -> Iterator[RawPair | Flaw]:
    """Yield sentence pairs from two columns of one data set, or from one column in each of two
    parallel data sets.

    Args:
        source, target: data set and name of the column, see `by_name.sides`.
        path: name of the text, for use in messages.
    """
    source_column, target_column = TextColumn(source[1]), TextColumn(target[1])
    source_rows = open_rows(source[0]).rows
    if source[0] == target[0]:
        for number, row in source_rows:
            yield _pair(number, row, row, source_column, target_column)
        return
    target_rows = open_rows(target[0]).rows
    # `zip(strict=True)` would raise a ValueError that does not name the row.
    number = 0
    for number, source_row in source_rows:
        _, target_row = next(target_rows, (0, None))
        if target_row is None:
            break
        yield _pair(number, source_row, target_row, source_column, target_column)
    else:
        if next(target_rows, None) is None:
            return
    raise InputError(
        "the two languages have different numbers of sentences", path=path, line=number
    )


# -- text with one tag per word --------------------------------------------------------------------
def read_tagged_rows(
    path: str | PathLike[str], *, lang: str, column: int | str | None = None
) -> Iterator[TaggedSentence | Flaw]:
    """Yield the sentences of a data set with a list of words and a list of tags in each row. Tags
    are strings, or numbers for which the data set defines names.

    Args:
        lang: unused, because the words are already separated.
        column: name of the column that contains the tags; default: a name in `_TAGS`.

    Raises:
        InputError: the data set cannot be read, or has no such columns.
    """
    data = open_rows(path)
    words_name = first_of(_WORDS, data.columns)
    intent_name = first_of(_INTENTS, data.columns)
    tags_name = first_of(_TAGS, data.columns) if column is None else str(column)
    if not data.columns:
        return
    if words_name is None or tags_name is None or tags_name not in data.columns:
        expected = f"{' or '.join(_WORDS)}, and {column or ' or '.join(_TAGS)}"
        fact = (
            f"has the columns {', '.join(data.columns)}; expected {expected}; rename the columns, "
            "or set column"
        )
        raise InputError(fact, path=path)
    for number, row in data.rows:
        intents = []
        if intent_name is not None:
            intents.append(data.name_of(intent_name, row[intent_name]))
        yield _tagged_sentence(
            number,
            row[words_name],
            row[tags_name],
            intents,
            lambda tag: data.name_of(tags_name, tag),
        )


def first_of(names: Sequence[str], columns: Collection[str]) -> str | None:
    """Return the first of `names` that is also in `columns`, or None."""
    return next((name for name in names if name in columns), None)


def _tagged_sentence(
    number: int,
    words: object,
    tags: object,
    intents: list[object],
    name_of: Callable[[object], object],
) -> TaggedSentence | Flaw:
    """Return the sentence in a row, or a `Flaw` if its words and tags do not match.

    Args:
        intents: name of the intent, or an empty list if the data set has no intents.
        name_of: function that returns the name of a tag.
    """
    # The numbers are only used in a message.
    n_words = len(words) if isinstance(words, list) else "no list of"
    n_tags = len(tags) if isinstance(tags, list) else "no list of"
    if not isinstance(words, list) or not isinstance(tags, list) or not words or n_words != n_tags:
        fact = f"{n_words} words and {n_tags} tags, expected one tag for each word"
        return Flaw(number, "words without tags", fact)
    tag_names = [name_of(tag) for tag in tags]
    flaw = _flaw_of_type(number, [*words, *tag_names, *intents])
    if flaw is not None:
        return flaw
    checked_tags = cast("list[str]", tag_names)
    flaw = missing_value(words, checked_tags, [number] * len(words))
    if flaw is not None:
        return flaw
    intent = str(intents[0]) if intents else None
    return TaggedSentence(number, words, checked_tags, intent)


def _flaw_of_type(number: int, values: Sequence[object]) -> Flaw | None:
    """Return a `Flaw` for the first value in a row that is not text, or None."""
    for value in values:
        if not isinstance(value, str):
            fact = (
                f"the value is {value!r:.40}, expected text, or a number whose name the data set "
                "defines"
            )
            return Flaw(number, "value without a name", fact)
    return None


# -- labelled text ---------------------------------------------------------------------------------
def is_labelled_table(head: FileHead) -> bool:
    """Return whether a path is a data set of labelled text. JSON objects in lines are read without
    the `datasets` library, which is needed for a JSON list.
    """
    if head.is_data_set or head.suffix in (".parquet", ".csv"):
        return True
    first_line = head.first_line
    return "\t" not in first_line and first_line.lstrip().startswith("[")


def read_labelled_rows(path: str | PathLike[str]) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the number and the values of each row. Numeric labels are replaced by the label names
    that the data set defines, and −1 by `NO_LABEL`.
    """
    data = open_rows(path)
    for number, row in data.rows:
        values = dict(row)
        for name in data.labels:
            if row[name] is not None:
                label = data.name_of(name, row[name])
                values[name] = NO_LABEL if label is None else label
        yield number, values
