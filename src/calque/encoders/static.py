"""Encoder for static word vectors, tables of word vectors, and readers for their file formats."""

from __future__ import annotations

import hashlib
import json
import struct
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from io import BufferedIOBase, FileIO
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from calque.algebra.normalize import unit_centre_unit, unit_rows
from calque.corpora.languages import best_match
from calque.corpora.lines import Losses
from calque.encoders.base import Encoder
from calque.encoders.folder import read_about, saving, write_about
from calque.encoders.per_language import check_language, encode_by_language
from calque.errors import CalqueWarning, InputError, SettingError, check_number
from calque.maps import VectorMap, about_map, open_map
from calque.nn.pooling import maxima, means, owners
from calque.offsets import offsets_of
from calque.progress import bar
from calque.storage import JsonObject, json_text, mapped_array
from calque.text import Sentence, Sentences, number_words
from calque.text_files import LONGEST_LINE, Flaw, flaw_of_bytes, opened_text
from calque.vectors import Embeddings, map_arrays, read_rows, write_arrays

VECTORS_FILE, WORDS_FILE = "vectors.safetensors", "words.json"
# The mean is taken over this number of most frequent words; many published files have this size.
_CENTRE_ON = 200_000
_SENTENCES = 1 << 12  # number of sentences that are encoded together
# arguments of `StaticEncoder` saved in `calque.json`
_SETTINGS = ("name", "normalise", "lower", "sentence")
_EOS = "</s>"  # the only word that has no character n-grams in fastText
_ROWS = 4096  # number of matrix rows that are read and averaged together


class StaticEncoder(Encoder):
    """Encoder for static word vectors, with one table per language.

    A vector is L2-normalised, mean-centred and L2-normalised again, then mapped by the map of its
    language. With `sentence`, the mean, maximum and minimum over the sentence are computed after
    mapping, because a rotation changes the maximum.

    Args:
        tables: tables of word vectors, keyed by language; the table with the key "" is used for all
            other languages.
        normalise: whether to L2-normalise, centre and L2-normalise again; the mean is taken over
            the first 200,000 words.
        lower: whether to look up the lower-case form of a word that is not in the table.
        maps: maps, keyed by language, which are applied to normalised vectors.
        sentence: weights for the word vector and for the mean, maximum and minimum over its
            sentence (`add_sentence`). The four vectors are concatenated to 4 × dim dimensions;
            default: the word vector alone.
        name: name shown in reports.

    Raises:
        SettingError: the tables have different numbers of dimensions, or a map does not match this
            number.
    """

    def __init__(
        self,
        tables: Mapping[str, WordTable],
        *,
        normalise: bool = True,
        lower: bool = True,
        maps: Mapping[str, VectorMap] | None = None,
        sentence: Sequence[float] | None = None,
        name: str = "static",
    ):
        dims = {lang: table.dim for lang, table in tables.items()}
        if len(set(dims.values())) != 1:
            raise SettingError(f"the tables must have the same number of dimensions, got {dims}")
        if sentence is not None:
            _check_weights(sentence)
        self.tables, self.maps = dict(tables), dict(maps or {})
        self.normalise, self.lower, self.sentence, self.name = normalise, lower, sentence, name
        self.word_dim = next(iter(dims.values()))
        for lang, fitted in self.maps.items():
            if fitted.matrix is None or fitted.matrix.shape != (self.word_dim, self.word_dim):
                raise SettingError(
                    f"the map for {lang!r} must be fitted on vectors with {self.word_dim} "
                    "dimensions"
                )
        self.dim = self.word_dim * (1 if sentence is None else 4)
        self._means: dict[str, np.ndarray] = {}

    def replace(self, **changes: Any) -> StaticEncoder:
        """Return an encoder with the same tables but some arguments changed, for example
        `encoder.replace(maps=None)`.
        """
        same = {key: getattr(self, key) for key in ("maps", *_SETTINGS)}
        changed = StaticEncoder(self.tables, **{**same, **changes})
        if changed.normalise == self.normalise:
            changed._means = self._means
        return changed

    @property
    def languages(self) -> tuple[str, ...]:
        return () if "" in self.tables else tuple(self.tables)

    def stored_words(self, lang: str) -> Sequence[str] | None:
        """Return the words of the language's table in file order, or None if the language has no
        table of its own.

        A table that is used for all languages may contain words of several languages; `lang=""`
        returns its words.
        """
        if lang:
            table = self.tables.get(best_match(lang, [key for key in self.tables if key]) or lang)
        else:
            table = self.tables.get("")
        return None if table is None else table.words

    def encode(
        self, sentences: Iterable[Sentence | Sequence[str]], *, progress: bool = False
    ) -> Embeddings:
        """Return one vector per word; out-of-vocabulary words have no vector and are not
        `covered`.
        """
        return encode_by_language(
            sentences, [0], self.dim, lambda part: {0: self._of_language(part, progress)}
        )[0]

    def _of_language(self, text: Sentences, progress: bool) -> Embeddings:
        lang = text.lang
        # A variety such as de-AT uses the table and the map of its language.
        key = best_match(lang, self.tables) or ""
        if key not in self.tables:
            raise SettingError(
                f"there are no word vectors for language {lang!r}; use one of {sorted(self.tables)}"
            )
        word_types, numbers, offsets = number_words(text)
        vectors, known = self.tables[key].lookup(word_types, lower=self.lower)
        is_finite = np.isfinite(vectors).all(axis=1)
        if not is_finite.all():
            word = word_types[int(np.flatnonzero(~is_finite)[0])][:40]
            raise InputError(
                f"{self.name}: the vector of {word!r} is not finite; download or copy the file "
                "again"
            )
        if self.normalise:
            vectors, _ = unit_centre_unit(vectors, self.mean(key))
        check_language(self, lang)
        map_lang = best_match(lang, self.maps)
        if map_lang is not None:
            vectors = self.maps[map_lang].transform(vectors)
        vectors[~known] = 0.0  # centring and mapping moved the zero vectors of unknown words
        # From one row per word type to one row per word; the result can exceed the memory.
        data = mapped_array((offsets[-1], self.dim), np.float32)
        covered = known[numbers]
        with bar(int(offsets[-1]), unit="word", title="look up", show=progress) as counter:
            for start in range(0, len(text), _SENTENCES):
                bounds = offsets[start : start + _SENTENCES + 1]
                rows = slice(bounds[0], bounds[-1])
                words = vectors[numbers[rows]]
                if self.sentence is not None:
                    words = add_sentence(words, bounds - bounds[0], covered[rows], self.sentence)
                data[rows] = words
                counter.update(len(words))
        return Embeddings(data, offsets, covered)

    def mean(self, lang: str) -> np.ndarray:
        """Return the mean of the table's first 200,000 L2-normalised vectors, float64
        `[word_dim]`.
        """
        if lang not in self._means:
            total = np.zeros(self.word_dim)
            n = min(_CENTRE_ON, len(self.tables[lang]))
            for start in range(0, n, _ROWS):
                block = self.tables[lang].vectors(np.arange(start, min(start + _ROWS, n)))
                total += unit_rows(block).sum(axis=0, dtype=np.float64)
            self._means[lang] = total / max(1, n)
        return self._means[lang]

    # -- fingerprint and files ---------------------------------------------------------------------
    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json_text([self.normalise, self.lower, self.sentence]).encode())
        for lang in sorted(self.tables):
            digest.update(lang.encode() + b"\0" + self.tables[lang].digest())
        for lang in sorted(self.maps):
            for name, array in sorted(self.maps[lang].arrays().items()):
                digest.update(f"{lang}.{name}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write tables, means, maps and settings to a folder that `load_static` and `load_encoder`
        can load.
        """
        with saving(folder, self) as path:
            arrays: dict[str, np.ndarray] = {}
            for lang, table in self.tables.items():
                arrays[f"{lang}.matrix"] = table.matrix
                if self.normalise:
                    arrays[f"{lang}.mean"] = self.mean(lang)
            for lang, fitted in self.maps.items():
                arrays.update(
                    {f"map.{lang}.{name}": array for name, array in fitted.arrays().items()}
                )
            write_arrays(path / VECTORS_FILE, arrays)
            words = {lang: table.words for lang, table in self.tables.items()}
            (path / WORDS_FILE).write_text(json_text(words), encoding="utf-8")
            about = {
                **{name: getattr(self, name) for name in _SETTINGS},
                "tables": {lang: table.settings() for lang, table in self.tables.items()},
                "maps": {lang: about_map(fitted) for lang, fitted in self.maps.items()},
            }
            write_about(path, "static", about)

    @classmethod
    def open(
        cls, folder: str | PathLike[str], *, about: JsonObject | None = None, **options: object
    ) -> Self:
        """Load a folder that `save` wrote, or a file of word vectors; the vectors in a folder are
        memory-mapped.
        """
        path = Path(folder)
        for option in ("layer", "pooling", "precision"):
            if option in options:
                raise SettingError(f"{option} does not apply to static word vectors ({path})")
        if not path.is_dir():
            return cls({"": read_table(folder)}, name=path.name)
        about = read_about(path) if about is None else about
        try:
            return cls._open_saved(path, about)
        except Exception as error:  # corrupt files can raise many kinds of exceptions
            raise InputError(
                f"incomplete or invalid vectors ({type(error).__name__}: {error})", path=path
            ) from error

    @classmethod
    def _open_saved(cls, path: Path, about: JsonObject) -> Self:
        """Load a folder that `save` wrote; raise any exception if its files are corrupt."""
        words = json.loads((path / WORDS_FILE).read_text(encoding="utf-8"))
        arrays, _ = map_arrays(path / VECTORS_FILE)
        tables = {
            lang: _saved_table(lang, words[lang], arrays[f"{lang}.matrix"], settings)
            for lang, settings in about["tables"].items()
        }
        maps = {
            lang: open_map(record, arrays, f"map.{lang}", path)
            for lang, record in about["maps"].items()
        }
        for name, expected in (("name", str), ("normalise", bool), ("lower", bool)):
            if not isinstance(about[name], expected):
                raise ValueError(f"{name} must be {expected.__name__}, got {about[name]!r:.60}")
        encoder = cls(tables, maps=maps, **{name: about[name] for name in _SETTINGS})
        # The saved means spare a pass over the vectors, which would read the whole file.
        if encoder.normalise:
            encoder._means = {lang: np.array(arrays[f"{lang}.mean"]) for lang in tables}
            if any(mean.shape != (encoder.word_dim,) for mean in encoder._means.values()):
                raise ValueError("each mean must have one number for each dimension")
        return encoder


def _saved_table(
    lang: str, words: list[str], matrix: np.ndarray, settings: JsonObject
) -> WordTable:
    """Return a table that `StaticEncoder.save` wrote."""
    # Files of earlier versions also contain "kind".
    ngram_settings = {name: value for name, value in settings.items() if name != "kind"}
    table = WordTable(words, matrix, **ngram_settings)
    if len(table) > len(matrix):
        raise ValueError(f"{len(table)} words in {lang}, but {len(matrix)} vectors")
    if not all(isinstance(word, str) for word in table.words):
        raise ValueError("each word must be a string")
    return table


def load_static(
    path: str | PathLike[str] | Mapping[str, str | PathLike[str]],
    *,
    normalise: bool = True,
    lower: bool = True,
    sentence: Sequence[float] | None = None,
    limit: int | None = None,
) -> StaticEncoder:
    """Load static word vectors from files (see `read_table` for formats) or from a saved folder.

    Args:
        path: one file for all languages, one file per language (`{"en": "wiki.en.vec", "de":
            "wiki.de.bin"}`), or a saved folder.
        normalise, lower, sentence: see `StaticEncoder`.
        limit: maximum number of words to read from each file.
    """
    if not isinstance(path, Mapping):
        if Path(path).is_dir():
            return StaticEncoder.open(path)
        path = {"": path}
    if not path:
        raise SettingError("no word vector file was given")
    name = "+".join(Path(fspath(file)).name for file in path.values())
    tables = {lang: read_table(file, limit=limit) for lang, file in path.items()}
    return StaticEncoder(tables, normalise=normalise, lower=lower, sentence=sentence, name=name)


def _check_weights(sentence: object) -> None:
    """Check the weights of `add_sentence`."""
    if isinstance(sentence, str) or not isinstance(sentence, Sequence) or len(sentence) != 4:
        fact = (
            "a list of four numbers (for the word, and for the mean, maximum and minimum over the "
            "sentence)"
        )
        raise SettingError(f"sentence must be {fact}, got {sentence!r:.60}")
    for number in sentence:
        check_number("each number in sentence", number)


def add_sentence(
    words: np.ndarray, offsets: np.ndarray, covered: np.ndarray, weights: Sequence[float]
) -> np.ndarray:
    """Concatenate each word vector with the mean, maximum and minimum over its sentence (Rücklé et
    al. 2018).

    Args:
        words: word vectors `[n_words, dim]`. The concatenated vectors are float32 `[n_words, 4 ×
            dim]`.
        offsets: offsets of the sentences, int64 `[n_sentences + 1]`.
        covered: mask of the words with a vector, bool `[n_words]`; the results for other words are
            zero.
        weights: factors for the word vector, the mean, the maximum and the minimum.
    """
    result = np.zeros((len(words), 4 * words.shape[1]), dtype=np.float32)
    rows = torch.from_numpy(words[covered])
    lengths = torch.from_numpy(np.diff(offsets_of(covered)[offsets]))  # covered words a sentence
    sentence_of_word = owners(lengths)
    minima = -maxima(-rows, lengths)
    columns = [weights[0] * rows]
    summaries = (means(rows.double(), lengths), maxima(rows, lengths), minima)
    for weight, summary in zip(weights[1:], summaries, strict=True):
        columns.append(weight * summary[sentence_of_word])
    result[covered] = torch.cat(columns, dim=1).numpy()
    return result


# -- tables and their files ------------------------------------------------------------------------
class WordTable:
    """Table of words and their vectors; a fastText model also has vectors for character n-grams.

    In a fastText model, a word's vector is the mean of the matrix rows of the word and its n-grams,
    so out-of-vocabulary words also have vectors (Bojanowski et al. 2017, §3.2). The row index of an
    n-gram is its FNV-1a hash modulo `bucket`, plus the number of words.

    Args:
        words: words in the order of the file, usually by frequency; only the first of several
            duplicates is used.
        matrix: vectors of the words, followed by those of the n-grams, float32 `[rows, dim]`.
        bucket: number of n-gram vectors; None if the table is not a fastText model.
        minn, maxn: minimum and maximum length of n-grams in characters, including the word boundary
            markers < and >; `maxn` is 0 for a model without n-grams.
    """

    def __init__(
        self,
        words: list[str],
        matrix: np.ndarray,
        *,
        bucket: int | None = None,
        minn: int = 0,
        maxn: int = 0,
    ):
        self.words, self.matrix, self.dim = words, matrix, matrix.shape[1]
        self.bucket, self.minn, self.maxn = bucket, minn, maxn
        # Reversed, so that the first of several duplicates is the last to be set.
        self.index = {word: number for number, word in reversed([*enumerate(words)])}

    def __len__(self) -> int:
        return len(self.words)

    def lookup(
        self, word_types: Sequence[str], *, lower: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors, float32 `[n, dim]`, and a mask of the words with a vector, bool
        `[n]`; other vectors are zero.

        Args:
            lower: whether to look up the lower-case form of an out-of-vocabulary word.
        """
        rows = np.full(len(word_types), -1, dtype=np.int64)
        for place, word in enumerate(word_types):
            row = self.index.get(word, -1)
            if row < 0 and lower:
                row = self.index.get(word.lower(), -1)
            rows[place] = row
        known = rows >= 0
        vectors = np.zeros((len(rows), self.dim), dtype=np.float32)
        vectors[known] = self.vectors(rows[known])
        if self.bucket is not None:
            # An out-of-vocabulary word gets the mean of its n-gram vectors, if it has n-grams.
            ngram_rows = {}
            for place in np.flatnonzero(~known).tolist():
                word_ngrams = self.ngrams(str(word_types[place]))
                if word_ngrams:
                    ngram_rows[place] = word_ngrams
            places = list(ngram_rows)
            vectors[places] = self._means(list(ngram_rows.values()))
            known[places] = True
        return vectors, known

    def settings(self) -> dict[str, int]:
        """Return the settings that are saved with the words and the matrix."""
        if self.bucket is None:
            return {}
        return {"bucket": self.bucket, "minn": self.minn, "maxn": self.maxn}

    def digest(self) -> bytes:
        """Return a hash of everything that determines the vectors."""
        digest = hashlib.blake2b(digest_size=16)
        # Saved fingerprints depend on these names.
        table_type = "plain" if self.bucket is None else "subwords"
        settings = sorted(self.settings().items())
        digest.update(repr((table_type, self.matrix.shape, settings)).encode())
        digest.update("\n".join(self.words).encode("utf-8", "surrogatepass"))
        for start in range(0, len(self.matrix), 65536):
            digest.update(np.ascontiguousarray(self.matrix[start : start + 65536]).tobytes())
        return digest.digest()

    def vectors(self, numbers: np.ndarray) -> np.ndarray:
        """Return the vectors of the words with the given indices."""
        if self.bucket is None:
            return np.asarray(self.matrix[numbers], dtype=np.float32)
        return self._means(
            [[number, *self.ngrams(self.words[number])] for number in numbers.tolist()]
        )

    def _means(self, rows: list[list[int]]) -> np.ndarray:
        """Return the mean of the matrix rows in each list of row indices; no list may be empty."""
        means = np.empty((len(rows), self.dim), dtype=np.float32)
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            lengths = np.array([len(numbers) for numbers in part])
            numbers = np.concatenate([np.array(numbers, dtype=np.int64) for numbers in part])
            starts = offsets_of(lengths)[:-1]
            sums = np.add.reduceat(self.matrix[numbers], starts, axis=0, dtype=np.float64)
            means[start : start + len(part)] = sums / lengths[:, None]
        return means

    def ngrams(self, word: str) -> list[int]:
        """Return the row index of each n-gram occurrence in the word (fastText,
        `Dictionary::computeSubwords`).
        """
        if word == _EOS or not self.bucket or not self.maxn:
            return []
        characters = []
        for character in f"<{word}>":
            encoded = character.encode("utf-8", "surrogatepass")
            # fastText sign-extends each byte to 32 bits before the XOR.
            characters.append([byte | 0xFFFFFF00 if byte > 127 else byte for byte in encoded])
        rows, first = [], len(self.words)
        for start in range(len(characters)):
            value = 2166136261  # offset basis of the 32-bit FNV-1a hash
            # The hash of a longer n-gram continues that of the shorter one with the same start.
            for size in range(1, min(self.maxn, len(characters) - start) + 1):
                for byte in characters[start + size - 1]:
                    value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
                if size < self.minn or (size == 1 and start in (0, len(characters) - 1)):
                    continue  # the n-gram is too short, or is only the marker < or >
                rows.append(first + value % self.bucket)
        return rows


_FASTTEXT = struct.pack("<i", 793712314)  # magic number of fastText models
_MAX_DIMENSIONS = 65_536  # more dimensions mean that the file is corrupt


def read_table(path: str | PathLike[str], *, limit: int | None = None) -> WordTable:
    """Read word vectors in one of these formats, uncompressed or compressed with gzip, zstd, xz or
    bzip2:

    - text (word2vec, fastText `.vec`, GloVe): a header `words dimensions`, except in GloVe, then
      one line per word, with fields separated by spaces or tabs;
    - word2vec binary: the same header; then, for each word, the word, a space and little-endian
      float32 numbers;
    - fastText model (`.bin`): memory-mapped unless compressed, so only the rows that are used are
      read.

    Lines whose word is empty or not UTF-8, or that have more numbers than dimensions, are skipped
    and counted in a `SkippedWarning`. Other warnings give the number of words in excess of the
    header, which are read, and of repeated words.

    Args:
        limit: maximum number of words; ignored for a fastText model.

    Raises:
        InputError: the file is in none of these formats, is incomplete, or has a vector that is not
            finite; or more than a tenth of the lines must be skipped.
    """
    table = _read_table(path, limit)
    repeated = len(table.words) - len(table.index)
    if repeated:
        message = (
            f"{fspath(path)}: {repeated:,} of {len(table.words):,} words are repeated; the first "
            "vector of each is used"
        )
        warnings.warn(CalqueWarning(message), stacklevel=2)
    return table


def _read_table(path: str | PathLike[str], limit: int | None) -> WordTable:
    with opened_text(path) as file:
        if file.peek(4)[:4] == _FASTTEXT:  # type: ignore[attr-defined]
            return _read_fasttext(file, path)
        first = file.readline(LONGEST_LINE)
        fields = first.split()
        if len(fields) == 2 and all(field.isdigit() for field in fields):
            n, dim = _parse_header(fields, path)
            # The binary format has the same header, but float32 numbers contain control characters.
            following: bytes = file.peek(4096)[:4096]  # type: ignore[attr-defined]
            if any(byte < 32 and byte not in b"\t\n\r" for byte in following):
                return _read_binary(file, path, n, dim, limit)
            return _read_text(file, path, n, dim, limit)
        _check_first_line(first, fields, path)
        return _read_text(chain([first], file), path, None, len(fields) - 1, limit)


def _parse_header(fields: Sequence[bytes], path: str | PathLike[str]) -> tuple[int, int]:
    """Return the numbers of words and dimensions in a header."""
    # The digits are cut, because Python refuses to parse numbers with thousands of them.
    n, dim = int(fields[0][:19]), int(fields[1][:19])
    if not (0 < n < 10**18 and 0 < dim <= _MAX_DIMENSIONS):
        fact = (
            f"the header must declare 1 to 10^18 words with 1 to {_MAX_DIMENSIONS:,} dimensions, "
            f"got {n} and {dim}"
        )
        raise InputError(fact, path=path, line=1)
    return n, dim


def _check_first_line(line: bytes, fields: Sequence[bytes], path: str | PathLike[str]) -> None:
    """Raise InputError if the first line of a file without a header is not a word with its
    numbers.
    """
    if not 2 <= len(fields) <= _MAX_DIMENSIONS or b"\0" in line:
        fact = (
            "not a word vector file: it must start with `words dimensions`, or with a word and "
            "its numbers"
        )
        raise InputError(fact, path=path, line=1)
    # One-dimensional vectors do not occur, so the line is a misspelt header or belongs to another
    # kind of file.
    if len(fields) == 2:
        shown = line.strip()[:60].decode("utf-8", "replace")
        fact = (
            f"the first line is {shown!r}, expected `words dimensions` (two whole numbers), or "
            "a word and its numbers"
        )
        raise InputError(f"{fact} (at least 2); is this a word vector file?", path=path, line=1)


def _read_text(
    lines: Iterable[bytes], path: str | PathLike[str], n: int | None, dim: int, limit: int | None
) -> WordTable:
    flaws: list[Flaw] = []
    words, matrix = read_rows(lines, path, n, dim, limit, skip=flaws.append)
    _report(flaws, len(words), path)
    return WordTable(words, matrix)


def _report(flaws: Sequence[Flaw], used: int, path: str | PathLike[str]) -> None:
    """Warn about skipped words, or raise an `InputError` if they are more than a tenth of the
    words.

    A file with a few bad words is common; many bad words show that the file has another encoding or
    other dimensions.
    """
    if not flaws:
        return
    losses = Losses(path, "skip", "words")
    for flaw in flaws:
        losses.take(flaw)
    if 10 * len(flaws) > len(flaws) + used:
        fact = (
            f"{len(flaws):,} of {len(flaws) + used:,} words cannot be used, expected at most a "
            "tenth"
        )
        raise InputError(f"{fact}; the first: {flaws[0].fact}", path=path, line=flaws[0].line)
    losses.settle(used)


# -- binary word2vec -------------------------------------------------------------------------------
def _read_binary(file: BufferedIOBase, path, n: int, dim: int, limit: int | None) -> WordTable:
    words: list[str] = []
    rows: list[np.ndarray] = []
    flaws: list[Flaw] = []
    for number in range(1, min(n, limit or n) + 1):
        word, data = _until(file, b" "), file.read(4 * dim)
        if len(data) != 4 * dim or word is None:
            raise InputError(
                f"the first line declares {n} words, but word {number} is incomplete", path=path
            )
        vector = np.frombuffer(data, dtype="<f4")
        if not np.isfinite(vector).all():
            raise InputError(
                f"the vector of word {number} is not finite; is the file corrupt?", path=path
            )
        word = word.lstrip(b"\n")
        flaw = _flaw_of_binary(word, number)
        if flaw is None:
            rows.append(vector)
            words.append(word.decode())
        else:
            flaws.append(flaw)
    if (limit is None or limit >= n) and file.read(_ROWS).strip(b"\n"):
        fact = (
            f"the first line declares {n} words, but more data follow; correct the number, or copy "
            "the file again"
        )
        raise InputError(fact, path=path)
    _report(flaws, len(words), path)
    return WordTable(words, np.stack(rows))


def _flaw_of_binary(word: bytes, number: int) -> Flaw | None:
    """Return a `Flaw` that gives the number of the entry if its word is empty or not UTF-8, or None
    if the word is usable.
    """
    if word:
        flaw = flaw_of_bytes(word, number)
    else:
        flaw = Flaw(number, "no word", "the vector has no word")
    return None if flaw is None else flaw._replace(place=f"word {number}")


def _until(file: BufferedIOBase, mark: bytes) -> bytes | None:
    """Return the bytes before the next `mark` and skip the mark; return None if no mark follows
    within 64 KiB.
    """
    before = bytearray()
    while len(before) < 1 << 16:
        byte = file.read(1)
        if byte == mark:
            return bytes(before)
        if not byte:  # end of the file
            return None
        before += byte
    return None


# -- fastText models -------------------------------------------------------------------------------
def _read_fasttext(file: BufferedIOBase, path: str | PathLike[str]) -> WordTable:
    """Read the dictionary and the input matrix of a model in the format of
    `FastText::saveModel`.
    """

    # The file has four parts in this order: arguments, dictionary, words, matrix.
    take = partial(_unpacked, file, path)
    dim, bucket, minn, maxn = _read_arguments(take, path)
    entries, n_words, _, _, pruned = take("iiiqq")
    if not (0 < dim < 1 << 20 and 0 <= n_words <= entries and bucket >= 0):
        raise InputError(
            "the dictionary of the fastText model is invalid; is the file corrupt?", path=path
        )
    words = _read_dictionary(file, path, entries)
    if len(words) != n_words:
        raise InputError(
            f"the model declares {n_words} words, but has {len(words)}; is the file corrupt?",
            path=path,
        )
    (quantised,) = take("b")
    if quantised or pruned > 0:
        raise InputError(
            "quantised fastText models (.ftz) are not supported; use the .bin or .vec file",
            path=path,
        )
    rows, columns = take("qq")
    n_ngrams = bucket if maxn else 0
    if columns != dim or rows < n_words + n_ngrams:
        raise InputError(
            f"the matrix is {rows} × {columns} for {n_words} words; is the file corrupt?", path=path
        )
    matrix = _read_matrix(file, path, rows, dim)
    return WordTable(words, matrix, bucket=bucket, minn=minn, maxn=maxn)


def _read_arguments(
    take: Callable[[str], tuple[int, ...]], path: str | PathLike[str]
) -> tuple[int, int, int, int]:
    """Read the arguments of a fastText model, and return `dim`, `bucket`, `minn` and `maxn`."""
    _, version = take("ii")
    if version not in (11, 12):
        raise InputError(
            f"the version of a fastText model must be 11 or 12, got {version}", path=path
        )
    # dim, ws, epoch, minCount, neg, wordNgrams, loss, model, bucket, minn, maxn, lrUpdateRate
    arguments = take("12i")
    dim, model, bucket, minn, maxn = arguments[0], arguments[7], *arguments[8:11]
    take("d")  # the threshold of subsampling
    if version == 11 and model == 3:
        # classifiers of version 11 have no n-grams, although the file contains n-gram lengths
        maxn = 0
    return dim, bucket, minn, maxn


def _read_matrix(
    file: BufferedIOBase, path: str | PathLike[str], rows: int, dim: int
) -> np.ndarray:
    """Return the matrix at the file's position, float32 `[rows, dim]`; it is memory-mapped if the
    file is not compressed, so that only used rows are read.
    """
    try:
        is_uncompressed = isinstance(getattr(file, "raw", None), FileIO)
        if is_uncompressed:
            return np.memmap(path, "<f4", "r", file.tell(), (rows, dim))
        return np.frombuffer(file.read(rows * dim * 4), dtype="<f4").reshape(rows, dim)
    except ValueError as error:
        raise InputError(
            "the fastText model is truncated; was the file copied completely?", path=path
        ) from error


def _unpacked(file: BufferedIOBase, path: str | PathLike[str], layout: str) -> tuple:
    """Read little-endian numbers with a layout of `struct`."""
    data = file.read(struct.calcsize("<" + layout))
    if len(data) != struct.calcsize("<" + layout):
        raise InputError(
            "the fastText model is truncated; was the file copied completely?", path=path
        )
    return struct.unpack("<" + layout, data)


def _read_dictionary(file: BufferedIOBase, path: str | PathLike[str], entries: int) -> list[str]:
    """Read the words of a fastText model; its dictionary also contains the labels of a classifier,
    which are left out.
    """
    words: list[str] = []
    n_unreadable = 0
    for _ in range(entries):
        word = _until(file, b"\0") or b""
        _, is_label = _unpacked(file, path, "qb")  # count, type
        if is_label:
            continue
        try:
            words.append(word.decode())
        except UnicodeDecodeError:  # the entry must be kept, because the matrix has a row for it
            words.append(f"\ufffd{len(words)}")
            n_unreadable += 1
    if n_unreadable:
        message = (
            f"{fspath(path)}: {n_unreadable:,} of {len(words):,} words are not UTF-8, so no word "
            "of a text can match them"
        )
        warnings.warn(CalqueWarning(message), stacklevel=5)
    return words
