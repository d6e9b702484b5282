"""Static word vectors as an encoder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from calque.algebra.normalize import unit_centre_unit, unit_rows
from calque.corpora.languages import best_match
from calque.encoders.base import Encoder
from calque.encoders.folder import read_about, saving, write_about
from calque.encoders.per_language import check_language, sentences_by_language
from calque.encoders.split import number_words
from calque.encoders.tables import WordTable, read_table
from calque.errors import InputError, SettingError
from calque.maps import VectorMap, about_map, open_map
from calque.offsets import offsets_of, ranges
from calque.progress import bar
from calque.storage import room
from calque.text import Sentence, Sentences
from calque.vectors import Embeddings, map_arrays, write_arrays

VECTORS_FILE, WORDS_FILE = "vectors.safetensors", "words.json"
_CENTRE_ON = 200_000  # words whose mean is taken away: the frequent ones, as tables are usually cut
_SENTENCES = 1 << 12  # whose words are looked up together


class StaticEncoder(Encoder):
    """The same vector for a word wherever it stands, one table per language.

    A vector goes through, in this order: unit length, minus the mean of the language's words, unit length
    again; the language's map, if there is one; the sentence part, if wanted, taken over the mapped vectors.
    The order matters: a maximum does not turn with a rotation.

    Args:
        tables: by language; the key "" serves every language that has no table of its own.
        normalise: unit length, centre, unit length. The mean is that of the table's first 200,000 words.
        lower: a word that is not in the table is looked up in lower case.
        maps: by language, applied to normalised vectors.
        sentence: weights of the sentence part; None for none. With it a vector has 4 × dim dimensions.
        name: what reports call the encoder.

    Raises:
        SettingError: tables of different dimensions, or a map that does not fit.
    """

    def __init__(
        self,
        tables: Mapping[str, WordTable],
        *,
        normalise: bool = True,
        lower: bool = True,
        maps: Mapping[str, VectorMap] | None = None,
        sentence: SentencePart | None = None,
        name: str = "static",
    ):
        dims = {lang: table.dim for lang, table in tables.items()}
        if len(set(dims.values())) != 1:
            raise SettingError(f"the tables must have the same number of dimensions, got {dims}")
        self.tables, self.maps = dict(tables), dict(maps or {})
        self.normalise, self.lower, self.sentence, self.name = normalise, lower, sentence, name
        self.word_dim = next(iter(dims.values()))
        for lang, fitted in self.maps.items():
            if fitted.matrix is None or fitted.matrix.shape != (self.word_dim, self.word_dim):
                raise SettingError(
                    f"the map of {lang!r} is not fitted, or not on vectors of {self.word_dim} dimensions"
                )
        self.dim = self.word_dim * (4 if sentence else 1)
        self._means: dict[str, np.ndarray] = {}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{lang or 'any'}: {len(table):,}" for lang, table in self.tables.items())
        return f"StaticEncoder({self.name}, {sizes} words, {self.dim}d, maps for {sorted(self.maps) or 'none'})"

    # -- variants --------------------------------------------------------------------------------------------
    def replace(self, **changes: Any) -> StaticEncoder:
        """The same tables with other arguments: `encoder.replace(sentence=SentencePart())`."""
        same = {key: getattr(self, key) for key in ("normalise", "lower", "maps", "sentence", "name")}
        changed = StaticEncoder(self.tables, **{**same, **changes})
        if changed.normalise == self.normalise:
            changed._means = self._means
        return changed

    # -- encoding --------------------------------------------------------------------------------------------
    @property
    def languages(self) -> tuple[str, ...]:
        return () if "" in self.tables else tuple(self.tables)

    def encode(self, sentences: Iterable[Sentence], *, progress: bool = False) -> Embeddings:
        """One vector per word; a word that its table does not have is not covered.

        Raises:
            SettingError: a sentence is in a language without a table, or there are maps and it does not say its language.
        """
        if isinstance(sentences, Sentences):
            texts = [(sentences, np.arange(len(sentences)))]
        else:
            texts = sentences_by_language(list(sentences))
        lengths = np.zeros(sum(len(text) for text, _ in texts), dtype=np.int64)
        for text, places in texts:
            lengths[places] = text.lengths()
        offsets = offsets_of(lengths)
        data, covered = room((offsets[-1], self.dim), np.float32), np.zeros(offsets[-1], dtype=bool)
        with bar(int(offsets[-1]), unit="word", title="look up", show=progress) as shown:
            for text, places in texts:
                forms, numbers, starts = number_words(text)
                vectors, known = self._type_vectors(text.lang, forms)
                for some in (slice(start, start + _SENTENCES) for start in range(0, len(text), _SENTENCES)):
                    bounds = starts[some.start : some.stop + 1]
                    part = numbers[bounds[0] : bounds[-1]]
                    rows = ranges(offsets[places[some]], np.diff(bounds))
                    words, has = vectors[part], known[part]
                    if self.sentence is not None:
                        words = add_sentence(words, bounds - bounds[0], has, self.sentence)
                    data[rows], covered[rows] = words, has
                    shown.update(len(part))
        return Embeddings(data, offsets, covered)

    def _type_vectors(self, lang: str, forms: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Vector of each form, mapped, and whether there is one."""
        key = best_match(lang, self.tables) or ""  # a variety, as de-AT, has its language's words and maps
        if key not in self.tables:
            raise SettingError(f"no word vectors for language {lang!r}, there are tables for {sorted(self.tables)}")
        vectors, known = self.tables[key].lookup(forms, lower=self.lower)
        if not np.isfinite(vectors).all():
            place = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise InputError(
                f"{self.name}: the vector of {forms[place][:40]!r} is not finite: the file of vectors is damaged, copy it again"
            )
        if self.normalise:
            vectors, _ = unit_centre_unit(vectors, self.mean(key))
        check_language(self, lang)
        if (mapped_as := best_match(lang, self.maps)) is not None:
            vectors = self.maps[mapped_as].transform(vectors)
        vectors[~known] = 0.0
        return vectors, known

    def mean(self, lang: str) -> np.ndarray:
        """Mean of the table's first 200,000 vectors of unit length, float64 `[word_dim]`."""
        if lang not in self._means:
            total, n = np.zeros(self.word_dim), 0
            for block in self.tables[lang].blocks(_CENTRE_ON):
                total += unit_rows(block).sum(axis=0, dtype=np.float64)
                n += len(block)
            self._means[lang] = total / max(1, n)
        return self._means[lang]

    # -- identity and disk -----------------------------------------------------------------------------------
    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json.dumps([self.normalise, self.lower, self.sentence]).encode())
        for lang in sorted(self.tables):
            digest.update(lang.encode() + b"\0" + self.tables[lang].digest())
        for lang in sorted(self.maps):
            for name, array in sorted(self.maps[lang].arrays().items()):
                digest.update(f"{lang}.{name}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write tables, means, maps and settings to a folder that `load_static` and `load_encoder` read."""
        with saving(folder, self) as path:
            arrays: dict[str, np.ndarray] = {}
            for lang, table in self.tables.items():
                arrays[f"{lang}.matrix"] = table.matrix
                if self.normalise:
                    arrays[f"{lang}.mean"] = self.mean(lang)
            for lang, fitted in self.maps.items():
                arrays.update({f"map.{lang}.{name}": array for name, array in fitted.arrays().items()})
            write_arrays(path / VECTORS_FILE, arrays)
            words = {lang: table.words for lang, table in self.tables.items()}
            (path / WORDS_FILE).write_text(json.dumps(words), encoding="utf-8")
            about = {
                "name": self.name,
                "normalise": self.normalise,
                "lower": self.lower,
                "sentence": self.sentence,
                "tables": {lang: table.settings() for lang, table in self.tables.items()},
                "maps": {lang: about_map(fitted) for lang, fitted in self.maps.items()},
            }
            write_about(path, "static", about)

    @classmethod
    def open(cls, folder: str | PathLike[str], *, about: Mapping[str, Any] | None = None, **options: Any) -> Self:
        """Read what `save` wrote, or a file of word vectors; the vectors stay mapped.

        Raises:
            InputError: a file is missing or damaged.
            SettingError: layer, pooling or precision, which static word vectors do not have.
        """
        path = Path(folder)
        for option in ("layer", "pooling", "precision"):
            if option in options:
                raise SettingError(f"{option} does not apply to static word vectors ({path})")
        if not path.is_dir():
            return cls({"": read_table(folder)}, name=path.name)
        about = read_about(path) if about is None else about
        try:
            words = json.loads((path / WORDS_FILE).read_text(encoding="utf-8"))
            arrays, _ = map_arrays(path / VECTORS_FILE)
            tables: dict[str, WordTable] = {}
            for lang, settings in about["tables"].items():
                numbers = {name: value for name, value in settings.items() if name != "kind"}
                tables[lang] = WordTable(words[lang], arrays[f"{lang}.matrix"], **numbers)
                if len(tables[lang]) > len(tables[lang].matrix):
                    raise ValueError(f"{len(tables[lang])} words in {lang}, but {len(tables[lang].matrix)} vectors")
            maps = {lang: open_map(record, arrays, f"map.{lang}", path) for lang, record in about["maps"].items()}
            sentence = SentencePart(*about["sentence"]) if about["sentence"] else None
            settings = {name: about[name] for name in ("normalise", "lower", "name")}
            encoder = cls(tables, maps=maps, sentence=sentence, **settings)
            if encoder.normalise:
                encoder._means = {lang: np.array(arrays[f"{lang}.mean"]) for lang in tables}
        except (SettingError, OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError,
                RecursionError) as error:  # fmt: skip
            raise InputError(f"not complete static vectors ({type(error).__name__}: {error})", path=path) from error
        return encoder


def load_static(
    path: str | PathLike[str] | Mapping[str, str | PathLike[str]],
    *,
    normalise: bool = True,
    lower: bool = True,
    sentence: SentencePart | bool = False,
    limit: int | None = None,
) -> StaticEncoder:
    """Static word vectors from files (see `read_table` for the formats), or from a folder that calque saved.

    Args:
        path: a file for all languages, or one for each: `{"en": "wiki.en.vec", "de": "wiki.de.bin"}`; or a
            folder, which says everything else itself.
        normalise, lower: see `StaticEncoder`.
        sentence: put the sentence part behind each vector; True for weights of 1.
        limit: read only so many words of each file.

    Raises:
        InputError: a file is not what it should be.
    """
    if not isinstance(path, Mapping):
        if Path(path).is_dir():
            return StaticEncoder.open(path)
        path = {"": path}
    if not path:
        raise SettingError("no file of word vectors was given")
    part = SentencePart() if sentence is True else sentence or None
    name = "+".join(Path(fspath(file)).name for file in path.values())
    tables = {lang: read_table(file, limit=limit) for lang, file in path.items()}
    return StaticEncoder(tables, normalise=normalise, lower=lower, sentence=part, name=name)


class SentencePart(NamedTuple):
    """What stands behind a word's vector: mean, maximum, minimum over its sentence (Rücklé et al. 2018).

    Attributes:
        word, mean, maximum, minimum: weight of each of the four parts.
    """

    word: float = 1.0
    mean: float = 1.0
    maximum: float = 1.0
    minimum: float = 1.0


def add_sentence(
    words: np.ndarray, offsets: np.ndarray, covered: np.ndarray, part: SentencePart | None = None
) -> np.ndarray:
    """Each word's vector with mean, maximum and minimum of its sentence's word vectors behind it.

    Args:
        words: `[n_words, dim]`.
        offsets: int64 `[n_sentences + 1]`.
        covered: bool `[n_words]`; other words count in no sentence, and their rows are zero.
        part: weights of the four parts.

    Returns:
        float32 `[n_words, 4 × dim]`: word, mean, maximum, minimum.
    """
    weights = part or SentencePart()
    lengths = np.diff(offsets)
    dim = words.shape[1]
    result = np.zeros((len(words), 4 * dim), dtype=np.float32)
    result[:, :dim] = weights[0] * words
    filled = np.flatnonzero(lengths)  # reduceat would read the next sentence for an empty one
    if len(filled):
        starts, owner = offsets[:-1][filled], np.repeat(np.arange(len(filled)), lengths[filled])
        outside = np.where(covered[:, None], np.float32(0), np.float32(-np.inf))
        counts = np.maximum(np.add.reduceat(covered.astype(np.int64), starts), 1)
        inside = np.where(covered[:, None], words, np.float32(0))
        sums = np.add.reduceat(inside, starts, axis=0, dtype=np.float64)
        result[:, dim : 2 * dim] = (weights[1] * sums / counts[:, None])[owner]
        result[:, 2 * dim : 3 * dim] = (weights[2] * np.maximum.reduceat(inside + outside, starts, axis=0))[owner]
        result[:, 3 * dim :] = (weights[3] * np.minimum.reduceat(inside - outside, starts, axis=0))[owner]
    result[~covered] = 0.0
    return result
