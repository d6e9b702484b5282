"""Vectors of all words of texts that are longer than an encoder reads at once."""

from __future__ import annotations

import warnings

import numpy as np

from calque.encoders.base import Encoder
from calque.encoders.extraction import UncoveredWordsWarning
from calque.offsets import offsets_of
from calque.text import Sentences
from calque.vectors import Embeddings


def encode_long(encoder: Encoder, texts: Sentences, *, progress: bool = False) -> Embeddings:
    """One vector for each word, whatever the encoder's limit.

    A text whose end has no vectors is read again from the middle of what was covered, until its end is reached. A word that
    is in several of these windows has its vector from the one where it has most words on its poorer side (as BERT's
    `run_squad.py` chooses, Devlin et al. 2019). The encoder itself says how far it gets, so any encoder will do.

    Args:
        texts: in any order; the result keeps it.

    Warns:
        UncoveredWordsWarning: words have no vector even alone.
    """
    first = _encoded(encoder, texts, progress)
    if first.covered is None:
        return first
    data, offsets = np.array(first.data), first.offsets
    covered = first.covered.copy()
    ends = {text: _end(covered[offsets[text] : offsets[text + 1]]) for text in range(len(first))}
    ends = {text: end for text, end in ends.items() if end < offsets[text + 1] - offsets[text]}
    # Some words have none for another reason: only those that have one alone are worth another reading.
    beyond = {text: np.arange(end, offsets[text + 1] - offsets[text]) for text, end in ends.items()}
    readable = _alone(encoder, texts, beyond)
    readers = [
        _Windows(texts[text].words, np.concatenate([np.arange(ends[text]), words]), ends[text], int(offsets[text]))
        for text, words in readable.items()
        if len(words)
    ]
    while readers:
        again = _encoded(encoder, Sentences.of([each.words for each in readers], texts.lang), False)
        for number, each in enumerate(readers):
            inside = slice(*again.offsets[number : number + 2])
            vectors, has = again.data[inside], None if again.covered is None else again.covered[inside]
            each.read(vectors, np.ones(len(vectors), dtype=bool) if has is None else has, data, covered)
        readers = [each for each in readers if not each.done]
    if missing := int((~covered).sum()):
        message = f"{missing:,} of {len(covered):,} words have no vector, not even alone; their rows are zero"
        warnings.warn(UncoveredWordsWarning(message), stacklevel=2)
    return Embeddings(data, offsets, covered)


class _Windows:
    """The windows of one text, one after the other.

    Args:
        places: int64 `[n]`, those of its words that can be read.
        end: how many of these the first window has.
        row: where the text begins among the vectors.
    """

    def __init__(self, words: tuple[str, ...], places: np.ndarray, end: int, row: int):
        self._words, self._places, self._row = words, places, row
        self._start, self._end = end // 2, end
        # Words on the poorer side of each in the window that its vector is from.
        self._context = np.full(len(places), -1, dtype=np.int64)
        self._context[:end] = _contexts(end)

    @property
    def words(self) -> list[str]:
        """What is to be read next."""
        return [self._words[place] for place in self._places[self._start :]]

    @property
    def done(self) -> bool:
        return self._end >= len(self._places)

    def read(self, vectors: np.ndarray, has: np.ndarray, data: np.ndarray, covered: np.ndarray) -> None:
        """Take what is better, and go on."""
        size = _end(has)
        end, here = self._start + size, slice(self._start, self._start + size)
        if end <= self._end:  # the next word takes all the room there is
            self._start, self._end = (self._end, self._end) if self._start < self._end else (self._end + 1,) * 2
            return
        better = (_contexts(size) > self._context[here]) & has[:size]
        rows = self._row + self._places[here][better]
        data[rows], covered[rows] = vectors[:size][better], True
        self._context[here][better] = _contexts(size)[better]
        self._start, self._end = max(self._start + 1, (self._start + end) // 2), end


def _contexts(n: int) -> np.ndarray:
    """Words on the poorer side of each of n, int64 `[n]`."""
    return np.minimum(np.arange(n), np.arange(n)[::-1])


def _end(covered: np.ndarray) -> int:
    """How many words there are up to the last that has a vector."""
    last = np.flatnonzero(covered)
    return int(last[-1]) + 1 if len(last) else 0


def _alone(encoder: Encoder, texts: Sentences, words: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Those of some words of some texts that have a vector as a text of their own."""
    single = []
    for text, places in words.items():
        own = texts[text].words
        single += [[own[place]] for place in places.tolist()]
    if not single:
        return {}
    has = _encoded(encoder, Sentences.of(single, texts.lang), False).covered
    has = np.ones(len(single), dtype=bool) if has is None else has
    starts = offsets_of([len(places) for places in words.values()])
    return {text: places[has[starts[k] : starts[k + 1]]] for k, (text, places) in enumerate(words.items())}


def _encoded(encoder: Encoder, texts: Sentences, progress: bool) -> Embeddings:
    """Without the warning of words that are to be read again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncoveredWordsWarning)
        return encoder.encode(texts, progress=progress)
