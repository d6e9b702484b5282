"""Word vectors of a collection under one layer of an encoder: encoded once, kept on disk, asked in milliseconds."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.errors import InputError, SettingError
from calque.explore.collection import Collection
from calque.explore.neighbourhoods import K, Neighbourhoods
from calque.storage import InUseError, amount, locked
from calque.vectors import Embeddings, filling, map_arrays

if TYPE_CHECKING:
    from calque.encoders import Encoder

_BLOCK = 65_536  # rows brought to length 1 at a time
_FORMAT = 1  # raise it with any change of what a store holds


@dataclass(frozen=True)
class Neighbours:
    """Nearest words in one language.

    Attributes:
        rows: int64 `[n]`, best first.
        csls, cosines: float32 `[n]`.
    """

    rows: np.ndarray
    csls: np.ndarray
    cosines: np.ndarray


class WordVectors:
    """The vectors of all words of a collection, of length 1, with what CSLS needs.

    The file is an `Embeddings` store with one tensor more, `hubness`.

    Args:
        collection: the text.
        embeddings: rows of length 1, zero where a word has no vector.
        hubness: float32 `[n_languages, n_words]`, mean cosine of each word with its `K` nearest words of each language
            (of its own language: itself left out); r in CSLS.
    """

    def __init__(self, collection: Collection, embeddings: Embeddings, hubness: np.ndarray):
        self.collection, self.embeddings, self.hubness = collection, embeddings, hubness
        self._number = {lang: k for k, lang in enumerate(collection.languages)}
        self._missing = None if embeddings.covered is None else np.flatnonzero(~np.asarray(embeddings.covered))

    @classmethod
    def open(cls, path: Path, collection: Collection) -> WordVectors:
        """Map a store into memory.

        Raises:
            InputError: not a store of this collection.
        """
        arrays, about = map_arrays(path)
        if about.get("calque.explore") != _about(collection):
            raise InputError("word vectors of another text, or of another version of calque", path=path)
        return cls(collection, Embeddings.open(path), arrays["hubness"])

    @classmethod
    def build(cls, path: Path, collection: Collection, embeddings: Embeddings, sums: Neighbourhoods) -> WordVectors:
        """Write a store: vectors brought to length 1, and the hubness of every word towards every language."""
        n, dim = embeddings.data.shape
        shapes: dict[str, tuple[tuple[int, ...], np.dtype | type]] = {
            "data": ((n, dim), np.float32),
            "offsets": (collection.offsets.shape, np.int64),
            "hubness": ((len(collection.languages), n), np.float32),
        }
        if embeddings.covered is not None:
            shapes["covered"] = ((n,), np.bool_)
        with filling(path, shapes, {"calque.explore": _about(collection)}) as arrays:
            arrays["offsets"][...] = collection.offsets
            if embeddings.covered is not None:
                arrays["covered"][...] = embeddings.covered
            for start in range(0, n, _BLOCK):
                try:
                    arrays["data"][start : start + _BLOCK] = unit_rows(embeddings.data[start : start + _BLOCK])
                except SettingError as error:
                    raise SettingError(f"{error}: the encoder cannot be explored") from error
            arrays["hubness"][...] = sums(arrays["data"], embeddings.covered, collection)
        return cls.open(path, collection)

    def vector(self, row: int) -> np.ndarray:
        return self.embeddings.data[row]

    def neighbours(self, vector: np.ndarray, lang: str, n: int, *, but: int | None = None) -> dict[str, Neighbours]:
        """The words nearest to a vector by CSLS, in every language: 2·cos(x, y) − r(x) − r(y).

        r(x) is taken from the one product that all similarities come from, r(y) from the store: for a word of the text
        the numbers are those of `calque.algebra.similarity.csls_neighbours` between its language and the other. A
        sentence typed in changes no r(y).

        Args:
            vector: `[dim]`, of length 1.
            lang: its language, which decides whose r(y) counts.
            n: how many of each language, the own one included.
            but: a row to leave out: the word itself.
        """
        cosines = self.cosines(vector)
        if but is not None:
            cosines[but] = -np.inf
        neighbours = {}
        for other in self.collection.languages:
            rows = self.collection.rows(other)
            near = cosines[rows]
            usable = int(np.count_nonzero(np.isfinite(near)))
            if not usable:
                neighbours[other] = Neighbours(np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.float32))
                continue
            density = float(np.partition(near, -min(K, usable))[-min(K, usable) :].mean())
            csls = 2 * near - density - self.hubness[self._number[lang], rows]
            best = np.argpartition(-csls, min(n, len(csls)) - 1)[:n]
            best = best[np.lexsort((best, -csls[best]))][:usable]
            neighbours[other] = Neighbours(best + rows.start, csls[best], near[best])
        return neighbours

    def cosines(self, vector: np.ndarray) -> np.ndarray:
        """Cosine with every word, float32 `[n_words]`; −inf for a word without a vector."""
        cosines = self.embeddings.data @ np.ascontiguousarray(vector, dtype=np.float32)
        if self._missing is not None:
            cosines[self._missing] = -np.inf
        return cosines


class Layers:
    """The layers of an encoder over a collection: encoded at once, each one's neighbourhoods computed when first asked for.

    Args:
        encoder: the encoder.
        numbers: its layers' numbers by name; None for what the encoder itself gives.
        collection: the text.
        folder: of this encoder and this text alone. What a stopped run left there is continued.
        sums: what computes neighbourhoods.
        progress: show a bar on standard error.

    Raises:
        SettingError: the disk has not the room, or the folder cannot be written.
    """

    def __init__(
        self,
        encoder: Encoder,
        numbers: dict[str, int | None],
        collection: Collection,
        folder: Path,
        sums: Neighbourhoods,
        *,
        progress: bool = False,
    ):
        self.numbers, self._collection, self._folder, self._sums = numbers, collection, folder, sums
        self._paths = {name: folder / f"{name}.safetensors" for name in numbers}
        self._open: dict[str, WordVectors] = {}
        self._building = threading.Lock()
        self._raw: dict[int | None, Embeddings] = {}
        if not self._find():
            _make_room(folder, collection, encoder.dim, 2 * len(numbers) - len(self._open))
            with self._alone(self._encoding):
                if not self._find():  # by another process, meanwhile
                    self._encode(encoder, progress)

    def _find(self) -> bool:
        """Open the layers that have been made; whether all have."""
        for name, path in self._paths.items():
            if name not in self._open and _is_store(path, self._collection):
                self._open[name] = WordVectors.open(path, self._collection)
        return len(self._open) == len(self.numbers)

    def _encode(self, encoder: Encoder, progress: bool) -> None:
        asked = [number for number in self.numbers.values() if number is not None]
        sentences = self._collection.sentences
        if asked:  # all of them, whatever is done: the same question finds what a stopped run left
            self._raw |= encoder.encode_layers(sentences, asked, progress=progress, out=self._encoding)
        if None in self.numbers.values():
            self._raw[None] = encoder.encode(sentences, progress=progress)

    @contextmanager
    def _alone(self, path: Path) -> Iterator[None]:
        """Wait until no other process, which explores the same encoder and text, makes this."""
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(locked(path))
                    break
                except InUseError:
                    self._sums.check()
                    time.sleep(0.2)
            yield

    @property
    def _encoding(self) -> Path:
        return self._folder / "encoding"

    def __contains__(self, name: str) -> bool:
        return name in self.numbers

    def get(self, name: str) -> WordVectors:
        """The vectors of a layer; the first call for it may take long."""
        if name not in self._open:
            with self._building:
                if name not in self._open:
                    self._open[name] = self._build(name)
                if len(self._open) == len(self.numbers) and self._raw:
                    self._raw.clear()
                    with self._alone(self._encoding):
                        shutil.rmtree(self._encoding, ignore_errors=True)
        return self._open[name]

    def _build(self, name: str) -> WordVectors:
        """A layer that was missing."""
        path = self._paths[name]
        with self._alone(path):
            if _is_store(path, self._collection):  # by another process, meanwhile
                return WordVectors.open(path, self._collection)
            return WordVectors.build(path, self._collection, self._raw[self.numbers[name]], self._sums)


def _is_store(path: Path, collection: Collection) -> bool:
    try:
        return map_arrays(path)[1].get("calque.explore") == _about(collection)
    except InputError:  # not there, or torn: it is made anew
        return False


def _about(collection: Collection) -> str:
    return json.dumps([_FORMAT, K, collection.fingerprint])


def _make_room(folder: Path, collection: Collection, dim: int, matrices: int) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise SettingError(
            f"{folder} cannot be written ({error.strerror}): choose another folder with --cache"
        ) from error
    needed = matrices * collection.n_words * dim * 4
    if needed > free:
        raise SettingError(
            f"{folder}: no space left on the disk for the vectors of {collection.n_words:,} words ({amount(needed)} to write "
            f"at most, {amount(free)} free): choose fewer --layers, less text (--limit) or another folder (--cache)"
        )


def layers_of(encoder: Encoder, wanted: Sequence[int] | None = None) -> tuple[dict[str, int | None], str]:
    """The layers of an encoder that are explored, by name, and the name of its own.

    Args:
        wanted: numbers, −1 being the last; None for the embeddings, the middle and the encoder's own. An encoder that
            combines layers, by maps or as a mixture, has what it gives and nothing else, and static vectors have one.

    Raises:
        SettingError: it has no such layer.
    """
    from calque.encoders.mapped import MappedEncoder

    layer = encoder.layer
    if layer is None:
        mapped = isinstance(encoder, MappedEncoder)
        name = f"{'+'.join(map(str, encoder.layers))} {encoder.combine}" if mapped else "own"
        return {name: None}, name
    if encoder.base is not None or len(encoder.layers) == 1:
        return {str(layer): None}, str(layer)
    number = encoder.layer_number
    chosen = [0, number(-1) // 2, layer] if wanted is None else map(number, wanted)
    return {str(k): k for k in sorted({*chosen, layer})}, str(layer)
