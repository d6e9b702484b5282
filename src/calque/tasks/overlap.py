"""What a test text shares with a training text, and with itself: seen pairs, equal forms, repeated types."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from calque.errors import CalqueWarning
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences

MUCH = 0.2  # of the test sentences: below that, greetings and headings come twice in any text

_BLOCK = 16_384  # sentence pairs of a training text looked at together


def forms_of(sentences: Sentences) -> tuple[np.ndarray, list[str]]:
    """The lower-cased form of every word: numbers, int64 `[n_words]`, and the forms that they number."""
    vocabulary: dict[str, int] = {}
    return _numbers(sentences, vocabulary, lower=True, grow=True), list(vocabulary)


def first_occurrences(sentences: Sentences) -> np.ndarray:
    """bool `[n_words]`: whether the word is the first of its form (as written) in the text."""
    vocabulary: dict[str, int] = {}
    numbers = _numbers(sentences, vocabulary, lower=False, grow=True)
    first = np.zeros(len(numbers), dtype=bool)
    first[np.unique(numbers, return_index=True)[1]] = True
    return first


def identical_forms(corpus: ParallelCorpus, pairs: WordPairs) -> np.ndarray:
    """bool `[n_pairs]`: whether the two linked words are the same string, lower-cased."""
    vocabulary: dict[str, int] = {}
    source, target = (_of_links(corpus, pairs, side, vocabulary, grow=True) for side in ("source", "target"))
    return source == target


def seen_pairs(corpus: ParallelCorpus, pairs: WordPairs, train: ParallelCorpus, train_pairs: WordPairs) -> np.ndarray:
    """bool `[n_pairs]`: whether words of the same two forms, lower-cased, are linked in the training text."""
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
    """bool `[n_sentences]`: whether the source or the target sentence, lower-cased, is in the training text.

    Empty sentences are shared with nothing.
    """
    sides = ((corpus.source, train.source), (corpus.target, train.target))
    source, target = (shared_texts([side], [other]) for side, other in sides)
    return source | target


def shared_texts(test: Sequence[Sentences], train: Sequence[Sentences]) -> np.ndarray:
    """bool `[n_texts]`: whether a test text, lower-cased, is among the training texts.

    Args:
        test, train: columns of texts; of pairs of texts both columns, which are compared together.
    """
    texts = list(_texts(test))
    known = (set(texts) - {""}).intersection(_texts(train))
    return np.fromiter((text in known for text in texts), dtype=bool, count=len(texts))


def _texts(columns: Sequence[Sentences]) -> Iterator[str]:
    for row in zip(*columns, strict=True):
        yield "\t".join(" ".join(sentence.words) for sentence in row).lower().strip()


class OverlapWarning(CalqueWarning):
    """A test text is in good part the training text: the figure says what was memorised, not what was learnt."""


def warn_of_overlap(test: str, shared: np.ndarray, train: str, *, stacklevel: int = 3) -> None:
    """Warn, in one line, if more than a fifth of the test sentences are in the training text.

    Args:
        shared: which test sentences are.
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
    """Number of the lower-cased form at one end of each link."""
    sentences: Sentences = getattr(corpus, side)
    words: np.ndarray = getattr(pairs, side)
    offsets = offsets_of(sentences.lengths())
    numbers = _numbers(sentences, vocabulary, lower=True, grow=grow)
    return numbers[offsets[pairs.sentence] + words]


def _numbers(sentences: Sentences, vocabulary: dict[str, int], *, lower: bool, grow: bool) -> np.ndarray:
    """A number for the form of each word, int64 `[n_words]`; −1 for one that the vocabulary may not take in.

    Python sees each form once per chunk of the Arrow column: its own `lower` is used, for which Arrow's is
    no substitute in every script, yet the words themselves never become Python strings.
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
