"""Vectors of many sentences: window by window, batch by batch, into memory or into a file that survives a stop."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calque.encoders.batches import WordBatch, collate, token_batches
from calque.encoders.split import SplitSentences
from calque.errors import InputError, OutputError, SettingError
from calque.offsets import offsets_of, ranges
from calque.progress import bar
from calque.storage import failure, part_of, room, vectors_room, write_text
from calque.text import Sentence, Sentences, not_a_string
from calque.vectors import Embeddings, create_arrays, map_arrays


class UncoveredWordsWarning(UserWarning):
    """Some words have no vector."""


@dataclass(frozen=True)
class Plan:
    """How sentences are cut into batches: part of the result's last bits, so a continued run keeps it.

    Attributes:
        budget: subwords in a batch, padding included.
        window: sentences that are sorted by length together, and split into subwords at a time.
    """

    budget: int
    window: int = 16_384


def extract(
    sentences: Iterable[Sentence | Sequence[str]],
    *,
    split: Callable[[Sequence[Sentence | Sequence[str]]], SplitSentences],
    vectors: Callable[[WordBatch], Mapping[int, Tensor]],
    layers: Sequence[int],
    dim: int,
    plan: Plan,
    key: str,
    dtype: str = "float32",
    out: Mapping[int, Path] | None = None,
    limit: int | None = None,
    progress: bool = False,
) -> dict[int, Embeddings]:
    """Vectors of all words, by layer.

    Memory is the result (or nothing of it, with `out`), and what one window of sentences needs.

    Args:
        split: cuts a window of sentences into what the model reads.
        vectors: word vectors of a batch by layer, each `[W, dim]`, zero for a word of length 0.
        key: hash over all that decides the vectors of a sentence.
        dtype: of the stored vectors, float32 or float16.
        out: a file for each layer.
        limit: most subwords of a sentence, to be named where words are lost to it.

    Raises:
        SettingError: another `dtype`.
    """
    stored = stored_type(dtype)
    sentences = sentences if isinstance(sentences, Sequence) else list(sentences)
    offsets = offsets_of(word_counts(sentences))
    if out is None:
        store = Store(layers, offsets, dim, stored)
    else:
        identity = _identity(key, sentences, plan, layers, stored)
        if (finished := finished_files(out, identity)) is not None:
            return finished
        for path in out.values():
            if path.is_dir():
                raise InputError("is a folder, expected the name of a file", path=path)
        store = FileStore(layers, offsets, dim, stored, out, identity)
    counts = np.zeros(3, dtype=np.int64)
    with encode_bar(int(offsets[-1]), progress) as shown, torch.inference_mode():
        for number, start in enumerate(range(0, len(sentences), plan.window)):
            window = split(sentences[start : start + plan.window])
            counts += (window.truncated_words, window.truncated_sentences, window.empty_words)
            first = int(offsets[start])
            store.cover(first, window.covered)
            done = store.done(number)
            to_do = {i: batch for i, batch in enumerate(_batches(window, plan.budget)) if i not in done}
            sizes = np.diff(window.word_offsets)
            shown.update(window.n_words - sum(int(sizes[batch].sum()) for batch in to_do.values()))
            for i, numbers in to_do.items():
                rows = first + ranges(window.word_offsets[numbers], sizes[numbers])
                for layer, states in vectors(collate(window, numbers)).items():
                    store.data[layer][rows] = states.to("cpu", torch.float32).numpy()
                shown.update(len(rows))
                store.finished(number, i)
            store.flush()
    _warn(counts, limit, int(offsets[-1]))
    return store.close()


def stored_type(dtype: str) -> np.dtype:
    """What vectors can be stored as."""
    if dtype not in ("float32", "float16"):
        raise SettingError(f"dtype={dtype!r}: vectors are stored as float32 or float16")
    return np.dtype(dtype)


def word_counts(sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
    """Words of each sentence, int64."""
    if isinstance(sentences, Sentences):
        return sentences.lengths()
    return np.fromiter((len(not_a_string(sentence)) for sentence in sentences), dtype=np.int64, count=len(sentences))  # type: ignore[arg-type]


def _batches(split: SplitSentences, budget: int) -> list[np.ndarray]:
    """Return batches of the sentences that have a word to encode."""
    reached = offsets_of(split.covered)
    covered = np.flatnonzero(reached[split.word_offsets[1:]] > reached[split.word_offsets[:-1]])
    return [covered[batch] for batch in token_batches(split.lengths[covered], budget)]


def _identity(key: str, sentences: Iterable, plan: Plan, layers: Sequence[int], dtype: np.dtype) -> str:
    """Hash over the encoder, the sentences, and how they are cut into batches."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([key, plan.budget, plan.window, list(layers), dtype.name]).encode())
    for sentence in sentences:
        words, lang = (sentence.words, sentence.lang) if isinstance(sentence, Sentence) else (sentence, "")
        digest.update(lang.encode("utf-8", "surrogatepass"))
        digest.update("\x1f".join(words).encode("utf-8", "surrogatepass") + b"\x1e%d" % len(words))
    return digest.hexdigest()


# -- saying what happens -----------------------------------------------------------------------------------------------
def _warn(counts: np.ndarray, limit: int | None, n_words: int) -> None:
    truncated, sentences, empty = counts.tolist()
    if not truncated and not empty:
        return
    reasons = []
    if truncated:
        reasons.append(f"{truncated:,} in {sentences:,} sentences exceed the limit of {limit} subwords")
    if empty:
        reasons.append(f"{empty:,} are dropped by the tokenizer")
    warnings.warn(
        f"{truncated + empty:,} of {n_words:,} words have no vector: {' and '.join(reasons)}; their rows are zero, and "
        "False in Embeddings.covered",
        UncoveredWordsWarning,
        stacklevel=5,  # through extract and the encoder's own methods to their caller,
    )


def encode_bar(n_words: int, progress: bool):
    """The bar of encoding."""
    return bar(n_words, unit="word", title="encode", show=progress, scaled=True)


FLUSH_SECONDS = 5.0  # how much work a stop may cost


class Store:
    """Vectors of all words by layer, in memory, or in mapped files without a name (`calque.storage`) where they are many.

    Attributes:
        data: `[n_words, dim]` by layer, to be written to.
    """

    data: dict[int, np.ndarray]

    def __init__(self, layers: Sequence[int], offsets: np.ndarray, dim: int, dtype: np.dtype):
        self.offsets = offsets
        self._covered = [room((offsets[-1],), bool)]
        self.data = {layer: vectors_room(offsets[-1], dim, dtype) for layer in layers}

    def cover(self, first: int, covered: np.ndarray) -> None:
        """Take which words have a vector, bool `[n]`, from word `first` on."""
        for array in self._covered:
            array[first : first + len(covered)] = covered

    def done(self, window: int) -> set[int]:
        """Return the window's batches that need not be computed again."""
        return set()

    def finished(self, window: int, batch: int) -> None:
        """Take notice that the vectors of a batch are there."""

    def flush(self) -> None:
        """Save what is there: a stop from now on loses nothing of it."""

    def close(self) -> dict[int, Embeddings]:
        """Return the result; all vectors are there."""
        return {layer: Embeddings(data, self.offsets, self._covered[0]) for layer, data in self.data.items()}


class FileStore(Store):
    """Vectors in temporary files, with the batches that are in them listed in a journal (`calque.storage.part_of`).

    A batch is listed after its vectors have been flushed, so a listed batch is whole, whenever the process is stopped.
    The files get their names, and the journal goes, when all is done: a file under its own name is complete.
    """

    def __init__(self, layers, offsets, dim, dtype, out: Mapping[int, Path], identity: str):
        self.out, self.offsets = dict(out), offsets
        self._partial = {layer: part_of(path) for layer, path in self.out.items()}
        first = next(iter(self.out.values()))
        self._journal = part_of(first, "journal")
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
