"""Vectors of many sentences, window by window and batch by batch; and of texts longer than an encoder reads at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calque.encoders.batches import WordBatch, collate, token_batches
from calque.encoders.split import SplitSentences
from calque.offsets import offsets_of, ranges
from calque.progress import bar
from calque.storage import room
from calque.text import Sentence, Sentences, not_a_string
from calque.vectors import Embeddings

WINDOW = 4_096  # sentences that are split into subwords together, sorted by length, and cut into batches


class UncoveredWordsWarning(UserWarning):
    """Some words have no vector."""


def extract(
    sentences: Iterable[Sentence | Sequence[str]],
    *,
    split: Callable[[Sequence[Sentence | Sequence[str]]], SplitSentences],
    vectors: Callable[[WordBatch], Mapping[int, Tensor]],
    layers: Sequence[int],
    dim: int,
    budget: int,
    window: int = WINDOW,
    limit: int | None = None,
    progress: bool = False,
) -> dict[int, Embeddings]:
    """Return vectors of all words, by layer. Memory is the result and what one window of sentences needs.

    Args:
        split: cuts a window of sentences into what the model reads.
        vectors: word vectors of a batch by layer, each `[W, dim]`, zero for a word of length 0.
        budget: subwords in a batch, padding included.
        window: sentences that are sorted by length together, and split into subwords at a time.
        limit: most subwords of a sentence, to be named where words are lost to it.
    """
    sentences = sentences if isinstance(sentences, Sequence) else list(sentences)
    offsets = offsets_of(word_counts(sentences))
    data = {layer: room((offsets[-1], dim), np.float32) for layer in layers}
    covered, lost = np.zeros(offsets[-1], dtype=bool), np.zeros(3, dtype=np.int64)
    with encode_bar(int(offsets[-1]), progress) as shown, torch.inference_mode():
        for start in range(0, len(sentences), window):
            some = split(sentences[start : start + window])
            lost += (some.truncated_words, some.truncated_sentences, some.empty_words)
            first, left = int(offsets[start]), some.n_words
            covered[first : first + some.n_words] = some.covered
            for numbers in _batches(some, budget):
                rows = first + ranges(some.word_offsets[numbers], np.diff(some.word_offsets)[numbers])
                for layer, states in vectors(collate(some, numbers)).items():
                    data[layer][rows] = states.to("cpu", torch.float32).numpy()
                shown.update(len(rows))
                left -= len(rows)
            shown.update(left)
    _warn(lost, limit, int(offsets[-1]))
    return {layer: Embeddings(vectors, offsets, covered) for layer, vectors in data.items()}


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
        stacklevel=5,  # through extract and the encoder's own methods to their caller
    )


def encode_bar(n_words: int, progress: bool):
    """Return the progress bar of encoding."""
    return bar(n_words, unit="word", title="encode", show=progress, scaled=True)


def encode_long(encoder: Any, texts: Sentences, *, progress: bool = False) -> Embeddings:
    """Return one vector for each word, whatever the encoder's limit.

    A text whose end has no vectors is read again from the middle of what was covered, until its end is reached. A word that
    is in several of these windows has its vector from the one where it has most words on its poorer side (as BERT's
    `run_squad.py` chooses, Devlin et al. 2019). How far a window gets is what the encoder covers, so any encoder will do.

    Args:
        encoder: an `Encoder`, which is built on this module.

    Warns:
        UncoveredWordsWarning: words have no vector even alone.
    """
    first = again = _encoded(encoder, texts, progress)
    if first.covered is None:
        return first
    data, offsets, covered = np.array(first.data), first.offsets, np.zeros_like(first.covered)
    context = np.full(len(covered), -1)  # words on the poorer side of each in the window that its vector is from
    starts = dict.fromkeys(range(len(first)), 0)  # of the window of each text that is not read to its end
    while starts:
        for number, (text, start) in enumerate(list(starts.items())):
            inside = slice(*again.offsets[number : number + 2])
            has = np.ones(inside.stop - inside.start, bool) if again.covered is None else again.covered[inside]
            size = int(np.flatnonzero(has)[-1]) + 1 if has.any() else 0
            rows, poorer = offsets[text] + start + np.arange(size), np.minimum(np.arange(size), np.arange(size)[::-1])
            better = np.flatnonzero(has[:size] & (poorer > context[rows]))
            data[rows[better]] = again.data[inside][better]
            covered[rows[better]], context[rows[better]] = True, poorer[better]
            starts[text] = start + max(1, size // 2)
            if start + max(1, size) >= offsets[text + 1] - offsets[text]:
                del starts[text]
        rest = [texts[text].words[start:] for text, start in starts.items()]
        again = _encoded(encoder, Sentences.of(rest, texts.lang), False) if rest else again
    if missing := int((~covered).sum()):
        message = f"{missing:,} of {len(covered):,} words have no vector, not even alone; their rows are zero"
        warnings.warn(UncoveredWordsWarning(message), stacklevel=2)
    return Embeddings(data, offsets, covered)


def _encoded(encoder: Any, texts: Sentences, progress: bool) -> Embeddings:
    """Encode without the warning about truncated words, which are encoded again in the next window."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncoveredWordsWarning)
        return encoder.encode(texts, progress=progress)
