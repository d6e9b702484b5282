"""Sentences and parallel text, stored in Arrow tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Literal, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calque.errors import InputError, SettingError
from calque.offsets import offsets_of
from calque.storage import WORDS, from_words, json_text, slice_rows, take_rows, whole

Side = Literal["source", "target"]
# column with the line number of each pair in its file; exists only if lines were skipped
LINE = "line"
_SLICE = 8192  # number of sentences that are held as Python strings at a time


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words of a sentence, and the code of their language (`en`, `de`, …).

    Raises:
        SettingError: `words` is a string instead of a list of words.

    Example:
        >>> from calque import split_words
        >>> Sentence(split_words("A walk, at last.", "en"), "en").words
        ('A', 'walk', ',', 'at', 'last', '.')
    """

    words: tuple[str, ...]
    lang: str = ""

    def __post_init__(self):
        if type(self.words) is not tuple:
            object.__setattr__(self, "words", tuple(not_a_string(self.words)))

    def __len__(self) -> int:
        return len(self.words)


class Sentences(Sequence[Sentence]):
    """List of sentences in one language, whose words are stored in an Arrow column.

    Args:
        column: Arrow column with a list of strings for each sentence.
        lang: language of the sentences.
    """

    def __init__(self, column: pa.ChunkedArray | pa.Array, lang: str = ""):
        if not isinstance(column, pa.ChunkedArray):
            column = pa.chunked_array([column], type=WORDS)
        self._column = column
        self.lang = lang

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]], lang: str = "") -> Sentences:
        """Build `Sentences` from lists of words.

        Raises:
            InputError: a word cannot be encoded as UTF-8.
            SettingError: a sentence is a string instead of a list of words.
        """
        return cls(_words(sentences), lang)

    @classmethod
    def joined(cls, parts: Sequence[Sentences]) -> Sentences:
        """Concatenate several lists of sentences without copying."""
        chunks = [chunk for part in parts for chunk in part._column.chunks]
        return cls(pa.chunked_array(chunks, type=WORDS), parts[0].lang if parts else "")

    def __len__(self) -> int:
        return len(self._column)

    def take(self, rows: np.ndarray) -> Sentences:
        """Return the sentences at the given indices."""
        return Sentences(self._column.take(pa.array(np.asarray(rows, dtype=np.int64))), self.lang)

    @overload
    def __getitem__(self, index: int) -> Sentence: ...
    @overload
    def __getitem__(self, index: slice) -> Sentences: ...
    def __getitem__(self, index: int | slice) -> Sentence | Sentences:
        if isinstance(index, slice):
            table = slice_rows(pa.table({"words": self._column}), index)
            return Sentences(table["words"], self.lang)
        return Sentence(tuple(self._column[index].as_py()), self.lang)

    def __iter__(self) -> Iterator[Sentence]:
        for chunk in self._column.chunks:
            for start in range(0, len(chunk), _SLICE):
                for words in chunk.slice(start, _SLICE).to_pylist():
                    yield Sentence(tuple(words), self.lang)

    def chunks(self) -> Sequence[pa.Array]:
        return self._column.chunks

    def lengths(self) -> np.ndarray:
        """Return the number of words of each sentence, int64 `[n_sentences]`."""
        if not len(self):
            return np.zeros(0, dtype=np.int64)
        return np.array(pc.call_function("list_value_length", [self._column]), dtype=np.int64)

    def flat(self) -> tuple[pa.ChunkedArray, np.ndarray]:
        """Return all words as Arrow strings, `[n_words]`, and the offsets of the sentences, int64
        `[n_sentences + 1]`.
        """
        words = pc.call_function("list_flatten", [self._column])
        if isinstance(words, pa.Array):
            words = pa.chunked_array([words], type=pa.string())
        return words, offsets_of(self.lengths())

    def word_types(self) -> tuple[pa.Array, np.ndarray, np.ndarray]:
        """Return the distinct words in the order of their first occurrence, as Arrow strings
        `[n_types]`, the type index of each word, int32 `[n_words]`, and the offsets of the
        sentences, int64 `[n_sentences + 1]`.

        `number_words` returns the types as Python strings.
        """
        words, offsets = self.flat()
        encoded = words.dictionary_encode().unify_dictionaries()
        # After unification, the indices of all chunks refer to the same dictionary.
        indices = [np.asarray(chunk.indices) for chunk in encoded.chunks]
        types = encoded.chunk(0).dictionary if encoded.num_chunks else pa.array([], pa.string())
        return types, np.concatenate([np.zeros(0, dtype=np.int32), *indices]), offsets


class ParallelCorpus:
    """Sentence pairs in two languages, with optional columns of metadata.

    The data is an Arrow table. A saved corpus is memory-mapped, so ten million pairs open instantly
    and slices are not copied. Create a corpus with `calque.read_parallel`, `of` or `open`.

    Args:
        table: Arrow table with the columns `source` and `target` (lists of strings), and optional
            string columns.
        langs: languages of source and target.
        skipped: number of skipped lines for each reason.
        first_skipped: position of the first skipped line for each reason.
        omitted: reasons for which the format of the file leaves out lines; the other reasons are
            errors in the file.
        path: file of the corpus, for use in messages.
    """

    def __init__(
        self,
        table: pa.Table,
        langs: tuple[str, str],
        *,
        skipped: Mapping[str, int] | None = None,
        first_skipped: Mapping[str, str] | None = None,
        omitted: Iterable[str] = (),
        path: str | None = None,
    ):
        if len(langs) != 2:
            raise SettingError(f"langs must be the two languages of the corpus, got {list(langs)}")
        for side in ("source", "target"):
            if side not in table.column_names:
                raise SettingError(
                    f"column {side!r} is missing; the table has the columns {table.column_names}"
                )
        self.table = table
        self.langs = (langs[0], langs[1])
        self.skipped = dict(skipped or {})
        self.first_skipped = dict(first_skipped or {})
        self.omitted = frozenset(omitted)
        self.path = path

    @classmethod
    def of(
        cls,
        source: Iterable[Sequence[str]],
        target: Iterable[Sequence[str]],
        langs: tuple[str, str],
        metadata: Mapping[str, Sequence[str]] | None = None,
    ) -> ParallelCorpus:
        """Build a `ParallelCorpus` from lists of words.

        Raises:
            InputError: source and target have different lengths, or a word cannot be encoded as
                UTF-8.
            SettingError: a sentence is a string instead of a list of words.
        """
        left, right = _words(source), _words(target)
        if len(left) != len(right):
            raise InputError(
                f"source and target must have the same length, got {len(left)} and {len(right)} "
                "sentences"
            )
        columns = {"source": left, "target": right}
        for name, values in (metadata or {}).items():
            columns[name] = pa.array(list(values), type=pa.string())
        return cls(pa.table(columns), langs)

    # -- access ------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return self.table.num_rows

    @overload
    def __getitem__(self, index: int) -> tuple[Sentence, Sentence]: ...
    @overload
    def __getitem__(self, index: slice) -> ParallelCorpus: ...
    def __getitem__(self, index: int | slice) -> tuple[Sentence, Sentence] | ParallelCorpus:
        if isinstance(index, slice):
            return self._part(slice_rows(self.table, index))
        return self.source[index], self.target[index]

    def __repr__(self) -> str:
        langs = "-".join(self.langs)
        return f"ParallelCorpus({len(self):,} pairs, {langs}, metadata={self.metadata_names})"

    @property
    def source(self) -> Sentences:
        return Sentences(self.table["source"], self.langs[0])

    @property
    def target(self) -> Sentences:
        return Sentences(self.table["target"], self.langs[1])

    def side(self, lang: str) -> Side:
        """Return which side of the corpus, "source" or "target", is in the language `lang`.

        Raises:
            SettingError: the corpus is not in this language.
        """
        if lang not in self.langs:
            raise SettingError(
                f"the corpus is in {self.langs[0]} and {self.langs[1]}, not in {lang!r}"
            )
        return "source" if self.langs[0] == lang else "target"

    @property
    def metadata_names(self) -> list[str]:
        return [name for name in self.table.column_names if name not in ("source", "target", LINE)]

    def metadata(self, name: str) -> list[str | None]:
        """Return a metadata column, with one string for each pair."""
        if name not in self.metadata_names:
            raise SettingError(f"no metadata column {name!r}; the corpus has {self.metadata_names}")
        return self.table[name].to_pylist()

    @property
    def lines(self) -> np.ndarray | None:
        """Line number of each pair in its file, starting at 1, int64 `[n_pairs]`; None if pair `i`
        is line `i + 1`.

        Use `lines` to match the pairs with other files that have one entry per original line, such
        as links or scores: `WordPairs.open(path).take(corpus.lines - 1)`.
        """
        return self.table[LINE].to_numpy() if LINE in self.table.column_names else None

    # -- derived corpora ---------------------------------------------------------------------------
    def _part(self, table: pa.Table) -> ParallelCorpus:
        return ParallelCorpus(table, self.langs, path=self.path)

    def take(self, indices: Sequence[int] | np.ndarray) -> ParallelCorpus:
        """Return the sentence pairs at `indices`, in this order."""
        return self._part(take_rows(self.table, indices))

    def swapped(self) -> ParallelCorpus:
        """Return the corpus with source and target exchanged."""
        # Only the names of the columns change, so no data is copied.
        other_side = {"source": "target", "target": "source"}
        names = [other_side.get(name, name) for name in self.table.column_names]
        return ParallelCorpus(
            self.table.rename_columns(names),
            (self.langs[1], self.langs[0]),
            skipped=self.skipped,
            first_skipped=self.first_skipped,
            omitted=self.omitted,
            path=self.path,
        )

    def __add__(self, other: ParallelCorpus) -> ParallelCorpus:
        """Concatenate two corpora; metadata columns that only one corpus has are dropped."""
        if self.langs != other.langs:
            raise SettingError(f"cannot join {self.langs} and {other.langs}: the languages differ")
        shared = []
        for name in self.table.column_names:
            # Line numbers of two files would be ambiguous.
            if name in other.table.column_names and name != LINE:
                shared.append(name)
        tables = [self.table.select(shared), other.table.select(shared)]
        return ParallelCorpus(pa.concat_tables(tables), self.langs)

    # -- disk --------------------------------------------------------------------------------------
    def save(self, path: str | PathLike[str]) -> None:
        """Write an Arrow IPC file atomically; `path` may be the file from which the corpus is
        memory-mapped.
        """
        # What is not a column is stored in the metadata of the schema.
        attributes = {
            "langs": self.langs,
            "skipped": self.skipped,
            "first_skipped": self.first_skipped,
            "omitted": sorted(self.omitted),
            "path": self.path,
        }
        record = {"calque": json_text(attributes)}
        schema = self.table.schema.with_metadata(record)
        with (
            whole(path) as part,
            pa.OSFile(fspath(part), "wb") as sink,
            pa.ipc.new_file(sink, schema) as writer,
        ):
            writer.write_table(self.table.replace_schema_metadata(record), max_chunksize=65536)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> ParallelCorpus:
        """Open a saved corpus as a memory-mapped file.

        Raises:
            InputError: the file is not a saved corpus.
        """
        try:
            table = pa.ipc.open_file(pa.memory_map(fspath(path))).read_all()
            table.validate(full=True)  # corrupt offsets or UTF-8 would crash the process later
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(f"not a saved parallel corpus ({error!s:.200})", path=path) from error
        try:
            attributes = json.loads((table.schema.metadata or {})[b"calque"])
            # Any Arrow file can have columns with these names.
            for side in ("source", "target"):
                if table.schema.field(side).type != WORDS:
                    raise ValueError
            return cls(table, **attributes)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, SettingError) as error:
            raise InputError(
                "an Arrow file, but not a parallel corpus saved by calque", path=path
            ) from error


def number_words(
    sentences: Iterable[Sentence | Sequence[str]],
    *,
    lower: bool = False,
    vocabulary: dict[str, int] | None = None,
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Number the word types of a text in the order of their first occurrence.

    Args:
        sentences: text; `Sentences` are numbered in Arrow, without a Python string for each word.
        lower: whether to lower-case words, so that types do not depend on case. Python lower-cases
            each distinct word once, because Arrow's lower-casing differs from Python's in some
            scripts.
        vocabulary: types that are already numbered from 0, such as those of another text. New types
            are added to it. Default: an empty vocabulary.

    Returns:
        the types of the vocabulary in the order of their indices, the type index of each word,
        int64 `[n_words]`, and the offsets of the sentences, int64 `[n_sentences + 1]`.

    Example:
        >>> number_words([["a", "B"], ["b", "a"]], lower=True)
        (['a', 'b'], array([0, 1, 1, 0]), array([0, 2, 4]))
    """
    vocabulary = {} if vocabulary is None else vocabulary
    # Arrow numbers words without creating a Python string for each of them.
    if isinstance(sentences, Sentences):
        types, numbers, offsets = sentences.word_types()
        distinct = types.to_pylist()
    else:
        distinct, numbers, offsets = _number_lists(sentences)
    if lower:
        distinct = [word.lower() for word in distinct]
    # Lower-casing can merge types, so indices among `distinct` are mapped to those of types.
    index_of = [vocabulary.setdefault(word, len(vocabulary)) for word in distinct]
    return list(vocabulary), np.array(index_of, dtype=np.int64)[numbers], offsets


def _number_lists(
    sentences: Iterable[Sentence | Sequence[str]],
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Compute `number_words` for sentences that are not stored in an Arrow column."""
    index_of: dict[str, int] = {}
    numbers: list[int] = []
    ends = [0]
    for sentence in sentences:
        words = sentence.words if isinstance(sentence, Sentence) else not_a_string(sentence)
        numbers.extend(index_of.setdefault(word, len(index_of)) for word in words)
        ends.append(len(numbers))
    return list(index_of), np.array(numbers, dtype=np.int64), np.array(ends, dtype=np.int64)


def not_a_string(sentence: Sequence[str]) -> Sequence[str]:
    """Raise an error if a sentence is a string, because its characters would be treated as words;
    otherwise return it.
    """
    if isinstance(sentence, str):
        raise SettingError(
            f"a sentence must be a list of words, got the string {sentence[:30]!r}: split the "
            'string first, as in calque.Sentence(calque.split_words(text, "en"), "en"), or with '
            "text.split() if spaces separate the words"
        )
    return sentence


def _words(sentences: Iterable[Sequence[str]]) -> pa.Array:
    try:
        return from_words(map(not_a_string, sentences))
    except (UnicodeEncodeError, pa.ArrowException) as error:
        raise InputError(f"words must be valid Unicode strings ({error!s:.200})") from error
