"""Where vectors go while they are computed: into memory, or into files that survive a stop."""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from calque.errors import OutputError
from calque.storage import failure, room, vectors_room, write_text
from calque.vectors import Embeddings, create_arrays, map_arrays

FLUSH_SECONDS = 5.0  # how much work a stop may cost


class Store(ABC):
    """Room for the vectors of all words, by layer.

    Attributes:
        data: `[n_words, dim]` by layer, to be written to.
    """

    data: dict[int, np.ndarray]

    @abstractmethod
    def cover(self, first: int, covered: np.ndarray) -> None:
        """Which words have a vector, bool `[n]`, from word `first` on."""

    @abstractmethod
    def done(self, window: int) -> set[int]:
        """The window's batches that need not be computed again."""

    @abstractmethod
    def finished(self, window: int, batch: int) -> None:
        """The vectors of a batch are there."""

    @abstractmethod
    def flush(self) -> None:
        """A stop from now on loses nothing that is there."""

    @abstractmethod
    def close(self) -> dict[int, Embeddings]:
        """All is there: the result."""


class MemoryStore(Store):
    """Vectors in memory, or in mapped files without a name (`calque.storage`) where they are many."""

    def __init__(self, layers: Sequence[int], offsets: np.ndarray, dim: int, dtype: np.dtype):
        self.offsets = offsets
        self._covered = room((offsets[-1],), bool)
        self.data = {layer: vectors_room(offsets[-1], dim, dtype) for layer in layers}

    def cover(self, first: int, covered: np.ndarray) -> None:
        self._covered[first : first + len(covered)] = covered

    def done(self, window: int) -> set[int]:
        return set()

    def finished(self, window: int, batch: int) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> dict[int, Embeddings]:
        return {layer: Embeddings(data, self.offsets, self._covered) for layer, data in self.data.items()}


class FileStore(Store):
    """Vectors in files `NAME.partial`, with the batches that are in them listed in `NAME.journal`.

    A batch is listed after its vectors have been flushed, so a listed batch is whole, whenever the process is stopped.
    The files get their names, and the journal goes, when all is done: a file under its own name is complete.
    """

    def __init__(self, layers, offsets, dim, dtype, out: Mapping[int, Path], identity: str):
        self.out, self.offsets = dict(out), offsets
        self._partial = {layer: path.with_name(path.name + ".partial") for layer, path in self.out.items()}
        first = next(iter(self.out.values()))
        self._journal = first.with_name(first.name + ".journal")
        self._new: list[tuple[int, int]] = []
        self._last = time.monotonic()
        listed = self._read(identity)
        self._done = listed or {}
        if listed is None:
            shapes = {"data": ((int(offsets[-1]), dim), dtype), "offsets": (offsets.shape, np.int64),
                      "covered": ((int(offsets[-1]),), np.bool_)}  # fmt: skip
            try:
                self._journal.unlink(missing_ok=True)
                for path in self._partial.values():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    create_arrays(path, shapes, {"calque.encode": identity})["offsets"][...] = offsets
                write_text(self._journal, json.dumps({"encode": identity}) + "\n")
            except (OSError, OutputError) as error:
                for path in self._partial.values():  # those of some layers help nobody
                    with suppress(OSError):
                        path.unlink(missing_ok=True)
                if isinstance(error, OutputError):
                    raise
                raise failure(first, f"cannot be written ({error.strerror})") from error
        mapped = {layer: map_arrays(path, mode="r+")[0] for layer, path in self._partial.items()}
        self.data = {layer: arrays["data"] for layer, arrays in mapped.items()}
        self._covered = [arrays["covered"] for arrays in mapped.values()]

    def cover(self, first: int, covered: np.ndarray) -> None:
        for array in self._covered:
            array[first : first + len(covered)] = covered

    def _read(self, identity: str) -> dict[int, set[int]] | None:
        """Batches by window that a stopped run of this very job has finished; None to begin anew."""
        try:
            lines = self._journal.read_text(encoding="utf-8").split("\n")[:-1]  # a torn last line has no end
            if json.loads(lines[0])["encode"] != identity:
                return None
            for path in self._partial.values():
                if map_arrays(path)[1].get("calque.encode") != identity:
                    return None
        except Exception:  # whatever is wrong with left-overs, a new start is right
            return None
        done: dict[int, set[int]] = {}
        for line in lines[1:]:
            window, *batches = map(int, line.split())
            done.setdefault(window, set()).update(batches)
        return done

    def done(self, window: int) -> set[int]:
        return self._done.get(window, set())

    def finished(self, window: int, batch: int) -> None:
        self._new.append((window, batch))
        if time.monotonic() - self._last > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        if self._new:
            for array in self.data.values():
                if isinstance(array, np.memmap):
                    array.flush()
            window = self._new[0][0]
            with open(self._journal, "a", encoding="utf-8") as file:
                file.write(f"{window} {' '.join(str(batch) for _, batch in self._new)}\n")
                file.flush()
                os.fsync(file.fileno())
            self._new.clear()
        self._last = time.monotonic()

    def close(self) -> dict[int, Embeddings]:
        for array in (*self._covered, *self.data.values()):
            if isinstance(array, np.memmap):
                array.flush()
        self.data.clear()
        self._covered.clear()
        for layer, path in self._partial.items():
            os.replace(path, self.out[layer])
        self._journal.unlink()
        return {layer: Embeddings.open(path) for layer, path in self.out.items()}


def finished_files(out: Mapping[int, Path], identity: str) -> dict[int, Embeddings] | None:
    """The result of the very same job, if it is there already."""
    for path in out.values():
        try:
            if map_arrays(path)[1].get("calque.encode") != identity:
                return None
        except Exception:  # no such file, or something else: it is made anew
            return None
    return {layer: Embeddings.open(path) for layer, path in out.items()}
