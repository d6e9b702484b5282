"""Compute vectors for many sentences in batches, and for texts that exceed the encoder's length
limit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

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

#: progress bar of encoded words
word_bar = partial(bar, unit="word", title="encode", scaled=True)
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
    covered = np.zeros(offsets[-1], dtype=bool)
    n_truncated_words = n_truncated_sentences = n_empty = 0
    with word_bar(int(offsets[-1]), show=progress) as counter, torch.inference_mode():
        for start in range(0, len(sentences), window):
            part = split(sentences[start : start + window])
            n_truncated_words += part.truncated_words
            n_truncated_sentences += part.truncated_sentences
            n_empty += part.empty_words
            first = int(offsets[start])
            covered[first : first + part.n_words] = part.covered
            counts = np.diff(part.word_offsets)
            # Sentences without any covered word are not encoded.
            has_words = np.flatnonzero(np.diff(offsets_of(part.covered)[part.word_offsets]))
            n_encoded = 0
            for batch in token_batches(part.lengths[has_words], budget):
                numbers = has_words[batch]
                rows = first + ranges(part.word_offsets[numbers], counts[numbers])
                for layer, states in vectors(collate(part, numbers)).items():
                    data[layer][rows] = states.to("cpu", torch.float32).numpy()
                counter.update(len(rows))
                n_encoded += len(rows)
            counter.update(part.n_words - n_encoded)
    reasons = []
    if n_truncated_words:
        reasons.append(
            f"{n_truncated_words:,} in {n_truncated_sentences:,} sentences exceed the limit of "
            f"{limit} subwords"
        )
    if n_empty:
        reasons.append(f"{n_empty:,} are dropped by the tokenizer")
    if reasons:
        fact = (
            f"{n_truncated_words + n_empty:,} of {offsets[-1]:,} words have no vector: "
            f"{' and '.join(reasons)}"
        )
        remedy = "their vectors are zero, and Embeddings.covered is False for them"
        # attributed to the caller of `encode`
        warnings.warn(f"{fact}; {remedy}", UncoveredWordsWarning, stacklevel=4)
    return {layer: Embeddings(vectors, offsets, covered) for layer, vectors in data.items()}


def word_counts(sentences: Sequence[Sentence | Sequence[str]]) -> np.ndarray:
    """Return the number of words in each sentence, int64."""
    if isinstance(sentences, Sentences):
        return sentences.lengths()
    return np.fromiter(
        (len(not_a_string(sentence)) for sentence in sentences),  # type: ignore[arg-type]
        dtype=np.int64,
        count=len(sentences),
    )


class Encodes(Protocol):
    """An encoder; this module cannot import the class `Encoder`, which imports this module."""

    def encode(self, sentences: Sentences, *, progress: bool = False) -> Embeddings: ...


def encode_long(encoder: Encodes, texts: Sentences, *, progress: bool = False) -> Embeddings:
    """Return one vector for each word of the texts, which can have any length.

    A long text is encoded in overlapping windows. A word in several windows gets the vector of the
    window in which the shorter of its left and right contexts is longest (as in BERT's
    `run_squad.py`, Devlin et al. 2019). A window starts in the middle of the words that the
    previous window covered, so the encoder's length limit need not be known.

    Warns:
        UncoveredWordsWarning: a word has no vector even when it is encoded alone.
    """
    windows = _encoded(encoder, texts, progress)
    if windows.covered is None:
        return windows
    data, offsets = np.array(windows.data), windows.offsets
    covered = np.zeros_like(windows.covered)
    # length of the shorter of the left and right contexts of each word
    context = np.full(len(covered), -1)
    # index of the first word in the current window of each unfinished text
    starts = dict.fromkeys(range(len(windows)), 0)
    while True:
        for number, (text, start) in enumerate(list(starts.items())):
            inside = slice(*windows.offsets[number : number + 2])
            has_vector = np.ones(inside.stop - inside.start, dtype=bool)
            if windows.covered is not None:
                has_vector = windows.covered[inside]
            # The window ends after the last word with a vector.
            size = int(np.flatnonzero(has_vector)[-1]) + 1 if has_vector.any() else 0
            rows = offsets[text] + start + np.arange(size)
            shorter = np.minimum(np.arange(size), np.arange(size)[::-1])
            better = np.flatnonzero(has_vector[:size] & (shorter > context[rows]))
            data[rows[better]] = windows.data[inside][better]
            covered[rows[better]] = True
            context[rows[better]] = shorter[better]
            if start + max(1, size) >= offsets[text + 1] - offsets[text]:
                del starts[text]
            else:
                starts[text] = start + max(1, size // 2)
        if not starts:
            break
        rest = [texts[text].words[start:] for text, start in starts.items()]
        windows = _encoded(encoder, Sentences.of(rest, texts.lang), False)
    n_missing = int((~covered).sum())
    if n_missing:
        message = (
            f"{n_missing:,} of {len(covered):,} words have no vector even if encoded alone; their "
            "vectors are zero"
        )
        warnings.warn(UncoveredWordsWarning(message), stacklevel=2)
    return Embeddings(data, offsets, covered)


def _encoded(encoder: Encodes, texts: Sentences, progress: bool) -> Embeddings:
    """Encode without the warning about truncated words, because the next window encodes these
    words.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncoveredWordsWarning)
        return encoder.encode(texts, progress=progress)
