"""Vectors of many sentences: window by window, batch by batch, into memory or into a file that survives a stop."""

from __future__ import annotations

import hashlib
import json
import os
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
from calque.storage import check_free, failure, part_of, room, vectors_room, write_text
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
    window: int = 4_096


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
    """Return vectors of all words, by layer.

    Memory is the result (or nothing of it, with `out`), and what one window of sentences needs. A file gets its name when it is
    complete; if the process is stopped, the same call goes on behind the last window that was finished.

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
    files = None
    if out is None:
        data = {layer: vectors_room(offsets[-1], dim, stored) for layer in layers}
        coverage = [room((offsets[-1],), bool)]
    else:
        identity = _identity(key, sentences, plan, layers, stored)
        if (finished := _finished(out, identity)) is not None:
            return finished
        files = _Files(out, identity, offsets, dim, stored)
        data, coverage = files.data, files.coverage
    counts = np.zeros(3, dtype=np.int64)
    with encode_bar(int(offsets[-1]), progress) as shown, torch.inference_mode():
        for number, start in enumerate(range(0, len(sentences), plan.window)):
            window = split(sentences[start : start + plan.window])
            counts += (window.truncated_words, window.truncated_sentences, window.empty_words)
            first, left = int(offsets[start]), window.n_words
            if files is None or number >= files.done:
                for covered in coverage:
                    covered[first : first + window.n_words] = window.covered
                for numbers in _batches(window, plan.budget):
                    rows = first + ranges(window.word_offsets[numbers], np.diff(window.word_offsets)[numbers])
                    for layer, states in vectors(collate(window, numbers)).items():
                        data[layer][rows] = states.to("cpu", torch.float32).numpy()
                    shown.update(len(rows))
                    left -= len(rows)
                if files is not None:
                    files.keep(number + 1)
            shown.update(left)
    _warn(counts, limit, int(offsets[-1]))
    if files is not None:
        return files.close()
    return {layer: Embeddings(vectors, offsets, coverage[0]) for layer, vectors in data.items()}


def stored_type(dtype: str) -> np.dtype:
    """Return the type of number that vectors are stored as."""
    if dtype not in ("float32", "float16"):
        raise SettingError(f"dtype={dtype!r}: vectors are stored as float32 or float16")
    return np.dtype(dtype)


def word_counts(sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
    """Return the number of words of each sentence, int64."""
    if isinstance(sentences, Sentences):
        return sentences.lengths()
    return np.fromiter((len(not_a_string(sentence)) for sentence in sentences), dtype=np.int64, count=len(sentences))  # type: ignore[arg-type]


def _batches(split: SplitSentences, budget: int) -> list[np.ndarray]:
    """Return batches of the sentences that have a word to encode."""
    reached = offsets_of(split.covered)
    covered = np.flatnonzero(reached[split.word_offsets[1:]] > reached[split.word_offsets[:-1]])
    return [covered[batch] for batch in token_batches(split.lengths[covered], budget)]


def _identity(key: str, sentences: Iterable, plan: Plan, layers: Sequence[int], dtype: np.dtype) -> str:
    """Return a hash over the encoder, the sentences, and how they are cut into batches."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([key, plan.budget, plan.window, list(layers), dtype.name]).encode())
    for sentence in sentences:
        words, lang = (sentence.words, sentence.lang) if isinstance(sentence, Sentence) else (sentence, "")
        digest.update(lang.encode("utf-8", "surrogatepass"))
        digest.update("\x1f".join(words).encode("utf-8", "surrogatepass") + b"\x1e%d" % len(words))
    return digest.hexdigest()


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
    """Return the progress bar of encoding."""
    return bar(n_words, unit="word", title="encode", show=progress, scaled=True)


class _Files:
    """Vectors in files under temporary names (`calque.storage.part_of`), and how many windows of sentences are in them.

    A window is counted after its vectors have been flushed, so a counted window is whole, whenever the process is stopped.

    Attributes:
        done: number of windows that a stopped run of the very same job has finished.
        data: `[n_words, dim]` by layer, to be written to.
        coverage: of each layer, bool `[n_words]`.
    """

    def __init__(self, out: Mapping[int, Path], identity: str, offsets: np.ndarray, dim: int, dtype: np.dtype):
        self._out, self._identity = dict(out), identity
        self._parts = {layer: part_of(path) for layer, path in out.items()}
        first = next(iter(out.values()))
        self._journal = part_of(first, "journal")
        for path in out.values():
            if path.is_dir():
                raise InputError("is a folder, expected the name of a file", path=path)
        for path in (*self._parts.values(), self._journal):
            check_free(path)
        if (done := self._read()) is None:
            n = int(offsets[-1])
            shapes = {"data": ((n, dim), dtype), "offsets": (offsets.shape, np.int64), "covered": ((n,), np.bool_)}
            try:
                for path in self._parts.values():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    create_arrays(path, shapes, {"calque.encode": identity})["offsets"][...] = offsets
            except (OSError, OutputError) as error:
                for path in self._parts.values():
                    with suppress(OSError):
                        path.unlink(missing_ok=True)
                if isinstance(error, OutputError):
                    raise
                raise failure(first, f"cannot be written ({error.strerror})") from error
        self.done = done or 0
        mapped = {layer: map_arrays(path, mode="r+")[0] for layer, path in self._parts.items()}
        self.data = {layer: arrays["data"] for layer, arrays in mapped.items()}
        self.coverage = [arrays["covered"] for arrays in mapped.values()]
        self.keep(self.done)

    def _read(self) -> int | None:
        """Return the number of windows that a stopped run of the same job has finished; None to begin anew."""
        try:
            journal = json.loads(self._journal.read_text(encoding="utf-8"))
            known = [journal["encode"], *(map_arrays(path)[1].get("calque.encode") for path in self._parts.values())]
            return int(journal["windows"]) if set(known) == {self._identity} else None
        except Exception:  # whatever is wrong with left-overs, a new start is right
            return None

    def keep(self, windows: int) -> None:
        """Flush the vectors, and record that so many windows are complete."""
        for array in (*self.coverage, *self.data.values()):
            if isinstance(array, np.memmap):  # an empty array is not mapped
                array.flush()
        write_text(self._journal, json.dumps({"encode": self._identity, "windows": windows}) + "\n")

    def close(self) -> dict[int, Embeddings]:
        """Give the files their names, and return their vectors."""
        self.data.clear()
        self.coverage.clear()
        for layer, path in self._parts.items():
            os.replace(path, self._out[layer])
        self._journal.unlink()
        return {layer: Embeddings.open(path) for layer, path in self._out.items()}


def _finished(out: Mapping[int, Path], identity: str) -> dict[int, Embeddings] | None:
    """Return the result of the very same job, if it is there already."""
    try:
        if all(map_arrays(path)[1].get("calque.encode") == identity for path in out.values()):
            return {layer: Embeddings.open(path) for layer, path in out.items()}
    except Exception:  # no such file, or something else: it is made anew
        pass
    return None
