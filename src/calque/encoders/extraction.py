"""Compute vectors for many sentences in batches, and for texts that exceed the encoder's length
limit.
"""

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
from calque.storage import mapped_array
from calque.text import Sentence, Sentences, not_a_string
from calque.vectors import Embeddings

BAR: dict[str, Any] = {"unit": "word", "title": "encode", "scaled": True}
WINDOW = 4_096  # number of sentences that are sorted by length together


class UncoveredWordsWarning(UserWarning):
    """Some words of the text have no vector."""


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
    """Return the vectors of all words, keyed by layer. Besides the result, only one window of
    sentences is held in memory.

    Args:
        split: function that splits a window of sentences into subwords.
        vectors: function that returns the word vectors of a batch, keyed by layer, each `[W, dim]`;
            words of length 0 get zeros.
        budget: maximum number of subwords in a batch, including padding.
        window: number of sentences that are split and sorted by length together.
        limit: maximum number of subwords in a sentence, which is only reported in the warning.
    """
    sentences = sentences if isinstance(sentences, Sequence) else list(sentences)
    offsets = offsets_of(word_counts(sentences))
    data = {layer: mapped_array((offsets[-1], dim), np.float32) for layer in layers}
    covered, lost = np.zeros(offsets[-1], dtype=bool), np.zeros(3, dtype=np.int64)
    with bar(int(offsets[-1]), show=progress, **BAR) as counter, torch.inference_mode():
        for start in range(0, len(sentences), window):
            some = split(sentences[start : start + window])
            lost += (some.truncated_words, some.truncated_sentences, some.empty_words)
            first, left = int(offsets[start]), some.n_words
            covered[first : first + some.n_words] = some.covered
            has_words = np.flatnonzero(np.diff(offsets_of(some.covered)[some.word_offsets]))
            for numbers in (
                has_words[batch] for batch in token_batches(some.lengths[has_words], budget)
            ):
                rows = first + ranges(
                    some.word_offsets[numbers], np.diff(some.word_offsets)[numbers]
                )
                for layer, states in vectors(collate(some, numbers)).items():
                    data[layer][rows] = states.to("cpu", torch.float32).numpy()
                counter.update(len(rows))
                left -= len(rows)
            counter.update(left)
    truncated, cut, empty = lost.tolist()
    reasons = [f"{truncated:,} in {cut:,} sentences exceed the limit of {limit} subwords"] * bool(
        truncated
    )
    reasons += [f"{empty:,} are dropped by the tokenizer"] * bool(empty)
    if reasons:
        fact = (
            f"{truncated + empty:,} of {offsets[-1]:,} words have no vector: "
            f"{' and '.join(reasons)}"
        )
        remedy = "their vectors are zero, and Embeddings.covered is False for them"
        warnings.warn(
            f"{fact}; {remedy}", UncoveredWordsWarning, stacklevel=4
        )  # attributed to the caller of `encode`
    return {layer: Embeddings(vectors, offsets, covered) for layer, vectors in data.items()}


def word_counts(sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
    """Return the number of words in each sentence, int64."""
    if isinstance(sentences, Sentences):
        return sentences.lengths()
    return np.fromiter(
        (len(not_a_string(sentence)) for sentence in sentences),
        dtype=np.int64,
        count=len(sentences),
    )  # type: ignore[arg-type]


def encode_long(encoder: Any, texts: Sentences, *, progress: bool = False) -> Embeddings:
    """Return one vector for each word of the texts, which can have any length.

    A long text is encoded in overlapping windows. A word in several windows gets the vector of the
    window in which the shorter of its left and right contexts is longest (as in BERT's
    `run_squad.py`, Devlin et al. 2019). A window starts in the middle of the words that the
    previous window covered, so the encoder's length limit need not be known.

    Warns:
        UncoveredWordsWarning: a word has no vector even when it is encoded alone.
    """
    first = again = _encoded(encoder, texts, progress)
    if first.covered is None:
        return first
    data, offsets, covered = np.array(first.data), first.offsets, np.zeros_like(first.covered)
    context = np.full(
        len(covered), -1
    )  # length of the shorter of the left and right contexts of each word
    starts = dict.fromkeys(
        range(len(first)), 0
    )  # start of the current window of each unfinished text
    while starts:
        for number, (text, start) in enumerate(list(starts.items())):
            inside = slice(*again.offsets[number : number + 2])
            has = (
                np.ones(inside.stop - inside.start, bool)
                if again.covered is None
                else again.covered[inside]
            )
            size = int(np.flatnonzero(has)[-1]) + 1 if has.any() else 0
            rows, poorer = (
                offsets[text] + start + np.arange(size),
                np.minimum(np.arange(size), np.arange(size)[::-1]),
            )
            better = np.flatnonzero(has[:size] & (poorer > context[rows]))
            data[rows[better]] = again.data[inside][better]
            covered[rows[better]], context[rows[better]] = True, poorer[better]
            starts[text] = start + max(1, size // 2)
            if start + max(1, size) >= offsets[text + 1] - offsets[text]:
                del starts[text]
        rest = [texts[text].words[start:] for text, start in starts.items()]
        again = _encoded(encoder, Sentences.of(rest, texts.lang), False) if rest else again
    if missing := int((~covered).sum()):
        message = (
            f"{missing:,} of {len(covered):,} words have no vector even if encoded alone; their "
            "vectors are zero"
        )
        warnings.warn(UncoveredWordsWarning(message), stacklevel=2)
    return Embeddings(data, offsets, covered)


def _encoded(encoder: Any, texts: Sentences, progress: bool) -> Embeddings:
    """Encode without the warning about truncated words, because the next window encodes these
    words.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncoveredWordsWarning)
        return encoder.encode(texts, progress=progress)
