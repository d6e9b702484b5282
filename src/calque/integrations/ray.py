"""Classes for Ray Data's `map_batches` that add vectors or word links to large texts (requires the
extra `ray`).

Each class takes an Arrow table and returns it with additional columns. Ray reads and writes the
text, creates one instance of the class per actor, and repeats the batches of failed nodes. The
classes do not import Ray, so other Arrow engines work too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from calque.encoders import load_encoder
from calque.encoders.base import require
from calque.errors import InputError, SettingError
from calque.segment import splitter
from calque.storage import from_words
from calque.text import ParallelCorpus, Sentences
from calque.wordalign import WordAligner

if TYPE_CHECKING:
    from calque.wordalign.symmetrization import Symmetrization


class Encode:
    """Batch function that adds the column `vectors` and, for word vectors, `words` and `covered`
    (mask of words with a vector).

    Args:
        encoder: hub name, folder, `mini` or word vector file; files and folders must exist on every
            node.
        lang, pretokenized: language of the text, and whether its words are already separated by
            spaces.
        column: name of the input column, which contains text or lists of words.
        load: further keyword arguments to `load_encoder`.
    """

    def __init__(
        self,
        encoder: str,
        *,
        lang: str,
        column: str = "text",
        pretokenized: bool = False,
        **load: Any,
    ):
        self._encoder = load_encoder(encoder, **load)
        require(self._encoder, "measured", rows=("words", "key points"))
        self._column, self._lang, self._pretokenized = column, lang, pretokenized

    def __call__(self, rows: pa.Table) -> pa.Table:
        text = sentences(rows, self._column, lang=self._lang, pretokenized=self._pretokenized)
        vectors = self._encoder.encode(text)
        # one list of vectors for each sentence, and one list of numbers for each vector
        offsets = pa.array(vectors.offsets, pa.int32())
        numbers = pa.array(np.ascontiguousarray(vectors.data).reshape(-1))
        data = pa.FixedSizeListArray.from_arrays(numbers, vectors.dim)
        columns: dict[str, pa.Array] = {"vectors": pa.ListArray.from_arrays(offsets, data)}
        if self._encoder.rows == "words":
            covered = vectors.covered
            if covered is None:
                covered = np.ones(vectors.n_words, dtype=bool)
            columns["words"] = from_words([sentence.words for sentence in text])
            columns["covered"] = pa.ListArray.from_arrays(offsets, pa.array(covered))
        return _with_columns(rows, columns)


class Link:
    """Batch function that adds the column `links`, with Pharaoh word links computed with tables
    from `calque words --tables`.

    The links equal those of `calque words --use` on one machine, because they depend only on the
    sentence pair and the tables.

    Args:
        tables: path of the table file, which must exist on every node.
        columns: names of the source and target columns.
        symmetrize, seed: see `WordAligner.align`.
        pretokenized: whether words are already separated by spaces.
        posteriors: whether to write the posterior probability of each link.
    """

    def __init__(
        self,
        tables: str,
        *,
        columns: tuple[str, str] = ("source", "target"),
        symmetrize: Symmetrization = "one-to-one",
        seed: int = 0,
        pretokenized: bool = False,
        posteriors: bool = False,
    ):
        if isinstance(columns, str) or len(columns) != 2:
            raise SettingError(
                f"columns must be the names of the source and target columns, got {columns!r}"
            )
        self._aligner = WordAligner.open(tables)
        self._columns = columns
        self._symmetrize: Symmetrization = symmetrize
        self._seed = seed
        self._pretokenized = pretokenized
        self._posteriors = posteriors

    def __call__(self, rows: pa.Table) -> pa.Table:
        langs = self._aligner.langs
        sides = []
        for column, lang in zip(self._columns, langs, strict=True):
            text = sentences(rows, column, lang=lang, pretokenized=self._pretokenized)
            sides.append([sentence.words for sentence in text])
        corpus = ParallelCorpus.of(sides[0], sides[1], langs)
        # one thread, because Ray starts one actor for each core
        pairs = self._aligner.align(corpus, symmetrize=self._symmetrize, seed=self._seed, threads=1)
        lines = pairs.pharaoh_lines(posteriors=self._posteriors)
        return _with_columns(rows, {"links": pa.array(lines, pa.string())})


def sentences(rows: pa.Table, column: str, *, lang: str, pretokenized: bool = False) -> Sentences:
    """Return the sentences of a column that contains lists of words or text; text is segmented into
    words.
    """
    if column not in rows.column_names:
        raise InputError(
            f"no column {column!r}; the table has {', '.join(rows.column_names) or 'no columns'}"
        )
    split = splitter(lang, pretokenized=pretokenized)
    words = []
    for item in rows[column].to_pylist():
        if isinstance(item, str):
            words.append(split(item))
        elif isinstance(item, list) and all(isinstance(word, str) for word in item):
            words.append(item)
        else:
            raise InputError(
                f"column {column!r}: expected text or a list of words, got {item!r:.60}"
            )
    return Sentences(from_words(words), lang)


def _with_columns(rows: pa.Table, columns: dict[str, pa.Array]) -> pa.Table:
    """Return the table with added or replaced columns."""
    rows = rows.drop_columns([name for name in columns if name in rows.column_names])
    for name, values in columns.items():
        rows = rows.append_column(name, values)
    return rows
