"""Word types, and the overlap between test and training text: unseen word pairs, identical words
and shared sentences.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from calque.errors import CalqueWarning
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences, number_words

if TYPE_CHECKING:
    from calque.vectors import Embeddings

# fraction of shared test sentences above which to warn; a few shared sentences may just be
# greetings
MUCH = 0.2


def covered_words(vectors: Embeddings) -> np.ndarray:
    """Return the mask of words that have a vector, bool `[n_words]`."""
    return np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered


def word_types(sentences: Sentences) -> tuple[np.ndarray, list[str]]:
    """Return the index of each word's lower-cased type, int64 `[n_words]`, and the list of
    types.
    """
    types, numbers, _ = number_words(sentences, lower=True)
    return numbers, types


def first_occurrences(sentences: Sentences) -> np.ndarray:
    """Return the mask of words that are the first occurrence of their case-sensitive word type,
    bool `[n_words]`.
    """
    _, numbers, _ = number_words(sentences)
    first = np.zeros(len(numbers), dtype=bool)
    first[np.unique(numbers, return_index=True)[1]] = True
    return first


# -- unseen, seen and identical word pairs ---------------------------------------------------------
def unseen_pairs(
    corpus: ParallelCorpus, pairs: WordPairs, train: ParallelCorpus, train_pairs: WordPairs
) -> np.ndarray:
    """Decide which word pairs of a test text are *unseen*, and return their mask, bool `[n_pairs]`.

    A word pair is unseen if both conditions hold:

    - its two lower-cased word types differ (`identical_words`), so the pair cannot be found by
      comparing spellings, and
    - the two word types are never linked to each other in the training text (`seen_pairs`), so the
      pair cannot have been memorised. Each word alone may occur in the training text.

    Args:
        corpus, pairs: test text and its word links.
        train, train_pairs: training text and its word links.
    """
    seen = seen_pairs(corpus, pairs, train, train_pairs)
    return ~seen & ~identical_words(corpus, pairs)


def seen_pairs(
    corpus: ParallelCorpus, pairs: WordPairs, train: ParallelCorpus, train_pairs: WordPairs
) -> np.ndarray:
    """Return the mask of links whose lower-cased word types are linked in the training text, bool
    `[n_pairs]`.
    """
    # Both texts and both languages share one vocabulary, so each pair of types has one code.
    vocabulary: dict[str, int] = {}
    source, target = _linked_types(corpus, pairs, vocabulary)
    train_source, train_target = _linked_types(train, train_pairs, vocabulary)
    size = len(vocabulary)
    return np.isin(source * size + target, train_source * size + train_target)


def identical_words(corpus: ParallelCorpus, pairs: WordPairs) -> np.ndarray:
    """Return the mask of links between words that are identical in lower case, bool `[n_pairs]`."""
    source, target = _linked_types(corpus, pairs, {})
    return source == target


def _linked_types(
    corpus: ParallelCorpus, pairs: WordPairs, vocabulary: dict[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the lower-cased types of each link's source word and target word, int64
    `[n_pairs]` each.

    Args:
        vocabulary: indices of the word types, to which new types are added.
    """
    _, source, source_offsets = number_words(corpus.source, lower=True, vocabulary=vocabulary)
    _, target, target_offsets = number_words(corpus.target, lower=True, vocabulary=vocabulary)
    return (
        source[source_offsets[pairs.sentence] + pairs.source],
        target[target_offsets[pairs.sentence] + pairs.target],
    )


# -- sentences shared by test and training text ----------------------------------------------------
def shared_sentences(corpus: ParallelCorpus, train: ParallelCorpus) -> np.ndarray:
    """Return the mask of sentence pairs of which at least one side occurs in the training text,
    bool `[n_sentences]`.

    Case is ignored, and so are empty sentences.
    """
    return shared_texts([corpus.source], [train.source]) | shared_texts(
        [corpus.target], [train.target]
    )


def shared_texts(test: Sequence[Sentences], train: Sequence[Sentences]) -> np.ndarray:
    """Return the mask of test texts that occur in the training texts, ignoring case, bool
    `[n_texts]`.

    Args:
        test, train: columns of texts. A text pair counts as shared only if both columns match.
    """
    texts = list(_joined_texts(test))
    # Only the shared texts are kept, because the training text can be much larger.
    shared = (set(texts) - {""}).intersection(_joined_texts(train))
    return np.array([text in shared for text in texts], dtype=bool)


def _joined_texts(columns: Sequence[Sentences]) -> Iterator[str]:
    """Yield each row of columns as one lower-cased string."""
    for row in zip(*columns, strict=True):
        yield "\t".join(" ".join(sentence.words) for sentence in row).lower().strip()


class OverlapWarning(CalqueWarning):
    """Warning that the training text contains much of the test text, so the scores partly measure
    memorisation.
    """


def warn_of_overlap(test: str, shared: np.ndarray, train: str) -> None:
    """Warn if more than a fifth of the test sentences occur in the training text.

    Args:
        shared: mask of the test sentences that occur in the training text.
    """
    n_shared = int(shared.sum())
    if n_shared > MUCH * len(shared):
        message = (
            f"{test}: {n_shared:,} of {len(shared):,} test sentences are in the training text {train}; "
            "the scores partly measure memorisation; test on different text"
        )
        warnings.warn(OverlapWarning(message), stacklevel=3)
