"""Overlap of test and training text: seen pairs, identical word types, shared sentences."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from calque.errors import CalqueWarning
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences

MUCH = 0.2  # fraction of test sentences; up to this, repeated greetings and headings are normal

_BLOCK = 16_384  # number of sentence pairs of a training text in a block


def forms_of(sentences: Sentences) -> tuple[np.ndarray, list[str]]:
    """Return the number of each word's lower-case type, int64 `[n_words]`, and the types."""
    vocabulary: dict[str, int] = {}
    return _numbers(sentences, vocabulary, lower=True, grow=True), list(vocabulary)


def first_occurrences(sentences: Sentences) -> np.ndarray:
    """Return the mask of words that are the first occurrence of their (case-sensitive) type, bool `[n_words]`."""
    vocabulary: dict[str, int] = {}
    numbers = _numbers(sentences, vocabulary, lower=False, grow=True)
    first = np.zeros(len(numbers), dtype=bool)
    first[np.unique(numbers, return_index=True)[1]] = True
    return first


def identical_forms(corpus: ParallelCorpus, pairs: WordPairs) -> np.ndarray:
    """Return the mask of links between identical lower-case words, bool `[n_pairs]`."""
    vocabulary: dict[str, int] = {}
    source, target = (_of_links(corpus, pairs, side, vocabulary, grow=True) for side in ("source", "target"))
    return source == target


def seen_pairs(corpus: ParallelCorpus, pairs: WordPairs, train: ParallelCorpus, train_pairs: WordPairs) -> np.ndarray:
    """Return the mask of links whose lower-case word types are linked in the training text, bool `[n_pairs]`."""
    vocabulary: dict[str, int] = {}
    source, target = (_of_links(corpus, pairs, side, vocabulary, grow=True) for side in ("source", "target"))
    size = len(vocabulary)
    asked = source * size + target
    seen = np.zeros(len(asked), dtype=bool)
    for start in range(0, len(train), _BLOCK):
        text, block_pairs = train[start : start + _BLOCK], train_pairs.slice(start, start + _BLOCK)
        source, target = (_of_links(text, block_pairs, side, vocabulary, grow=False) for side in ("source", "target"))
        known = (source >= 0) & (target >= 0)
        seen |= np.isin(asked, np.unique(source[known] * size + target[known]))
    return seen


def shared_sentences(corpus: ParallelCorpus, train: ParallelCorpus) -> np.ndarray:
    """Return the mask of sentence pairs with a side that occurs in the training text, in lower case, bool `[n_sentences]`.

    Empty sentences do not count.
    """
    sides = ((corpus.source, train.source), (corpus.target, train.target))
    source, target = (shared_texts([side], [other]) for side, other in sides)
    return source | target


def shared_texts(test: Sequence[Sentences], train: Sequence[Sentences]) -> np.ndarray:
    """Return the mask of test texts that occur in the training texts, in lower case, bool `[n_texts]`.

    Args:
        test, train: columns of texts; both columns of pairs are compared together.
    """
    texts = list(_texts(test))
    known = (set(texts) - {""}).intersection(_texts(train))
    return np.fromiter((text in known for text in texts), dtype=bool, count=len(texts))


def _texts(columns: Sequence[Sentences]) -> Iterator[str]:
    for row in zip(*columns, strict=True):
        yield "\t".join(" ".join(sentence.words) for sentence in row).lower().strip()


class OverlapWarning(CalqueWarning):
    """A large part of the test text is in the training text, so scores partly show memorisation."""


def warn_of_overlap(test: str, shared: np.ndarray, train: str, *, stacklevel: int = 3) -> None:
    """Warn if more than a fifth of the test sentences are in the training text.

    Args:
        shared: mask of these test sentences.
    """
    n = int(shared.sum())
    if n > MUCH * len(shared):
        message = (
            f"{test}: {n:,} of {len(shared):,} test sentences are in the training text {train}; "
            "the scores partly show memorisation: test on other text"
        )
        warnings.warn(OverlapWarning(message), stacklevel=stacklevel)


def _of_links(
    corpus: ParallelCorpus, pairs: WordPairs, side: str, vocabulary: dict[str, int], *, grow: bool
) -> np.ndarray:
    """Return the number of the lower-case word type at one end of each link."""
    sentences: Sentences = getattr(corpus, side)
    words: np.ndarray = getattr(pairs, side)
    offsets = offsets_of(sentences.lengths())
    numbers = _numbers(sentences, vocabulary, lower=True, grow=grow)
    return numbers[offsets[pairs.sentence] + words]


def _numbers(sentences: Sentences, vocabulary: dict[str, int], *, lower: bool, grow: bool) -> np.ndarray:
    """Return the number of each word's type, int64 `[n_words]`; −1 for a type outside of a fixed vocabulary.

    Each type is converted to a Python string once per chunk of the Arrow column, because Arrow's lower-casing differs from
    Python's in some scripts.
    """
    words, _ = sentences.flat()
    numbers = [np.zeros(0, dtype=np.int64)]
    for chunk in words.chunks:
        encoded = chunk.dictionary_encode()
        forms = encoded.dictionary.to_pylist()
        if lower:
            forms = [form.lower() for form in forms]
        if grow:
            table = [vocabulary.setdefault(form, len(vocabulary)) for form in forms]
        else:
            table = [vocabulary.get(form, -1) for form in forms]
        numbers.append(np.array(table, dtype=np.int64)[np.array(encoded.indices)])
    return np.concatenate(numbers)
