"""Vectors of many sentences: window by window, batch by batch, into memory or into a file that survives a stop."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calque.encoders.batches import WordBatch, collate, token_batches
from calque.encoders.split import SplitSentences
from calque.encoders.stores import FileStore, MemoryStore, Store, finished_files
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of, ranges
from calque.progress import bar
from calque.text import Sentence, Sentences, not_a_string
from calque.vectors import Embeddings


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
        progress: show a bar on stderr.

    Raises:
        SettingError: another `dtype`.
    """
    stored = stored_type(dtype)
    sentences = sentences if isinstance(sentences, Sequence) else list(sentences)
    offsets = offsets_of(word_counts(sentences))
    if out is None:
        store: Store = MemoryStore(layers, offsets, dim, stored)
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
        words = sentence.words if isinstance(sentence, Sentence) else sentence
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
