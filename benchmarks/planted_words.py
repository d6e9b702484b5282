"""Choose frequent words that have different neighbours in a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_matrix

from calque.errors import InputError

_NEAR, _WIDE = (
    3,
    10,
)  # maximum distance of neighbours that are counted per distance, and of all neighbours
_KEPT = 50  # number of most frequent words, which are never joined
_KNOWN = 5000  # number of neighbour words with separate features; all other words share one feature

Words = Sequence[str]


def contexts(
    sentences: Sequence[Words], places: Sequence[tuple[int, int]], known: dict[str, int]
) -> csr_matrix:
    """Count the neighbours of each word, `[places, features]`.

    Neighbours up to ten words away are counted per side; those up to three words away are also
    counted per side and distance.

    Args:
        sentences: the text.
        places: sentence and position of each word.
        known: feature index of each neighbour word; the boundaries of a sentence are neighbours,
            too.
    """
    width = len(known) + 3  # start of sentence, end of sentence and unknown word
    numbers = {
        i: [width - 3, *(known.get(word, width - 1) for word in sentences[i]), width - 2]
        for i, _ in places
    }
    rows, columns = [], []
    for row, (i, j) in enumerate(places):
        line, at = numbers[i], j + 1
        left, right = line[max(at - _WIDE, 0) : at][::-1], line[at + 1 : at + 1 + _WIDE]
        for side, near in enumerate((left, right)):
            first = side * (_NEAR + 1) * width
            found = [first + distance * width + word for distance, word in enumerate(near[:_NEAR])]
            found += [first + _NEAR * width + word for word in near]
            rows += [row] * len(found)
            columns += found
    shape = (len(places), 2 * (_NEAR + 1) * width)
    return csr_matrix((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=shape)


def known_words(sentences: Sequence[Words]) -> dict[str, int]:
    """Return the feature indices of the most frequent words."""
    counts = Counter(word for sentence in sentences for word in sentence)
    return {word: k for k, (word, _) in enumerate(counts.most_common(_KNOWN))}


def neighbour_chances(
    counts: csr_matrix, labels: np.ndarray, classes: int, *, prior: float = 20.0
) -> np.ndarray:
    """Return the smoothed log-probability of each neighbour given each class, float32 `[classes,
    features]`.

    Args:
        counts: neighbour counts, see `contexts`.
        labels: class of each occurrence, int `[places]`.
        classes: number of classes.
        prior: number of pseudo-counts for smoothing with the neighbour distribution over all
            classes.
    """
    member = csr_matrix(
        (np.ones(len(labels), dtype=np.float32), (labels, np.arange(len(labels)))),
        (classes, len(labels)),
    )
    seen = csr_matrix(member @ counts).toarray()
    everywhere = np.asarray(counts.sum(axis=0)).ravel() + 0.01
    chances = seen + prior * everywhere / everywhere.sum()
    return np.log(chances / chances.sum(axis=1, keepdims=True)).astype(np.float32)


def occurrences(
    sentences: Sequence[Words], wanted: Sequence[str]
) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Return the sentence and position of every occurrence of the words in `wanted`, and the word's
    index in `wanted`.
    """
    number = {word: k for k, word in enumerate(wanted)}
    found = [
        (i, j, number[word])
        for i, line in enumerate(sentences)
        for j, word in enumerate(line)
        if word in number
    ]
    return [(i, j) for i, j, _ in found], np.array([k for _, _, k in found], dtype=np.int64)


def confusions(sentences: Sequence[Words], pool: Sequence[str], *, asked: int = 200) -> np.ndarray:
    """Return the rate at which a naive Bayes classifier confuses each pair of words, symmetric
    float `[words, words]`.

    Probabilities are estimated on each half of the sentences, and tested on up to `asked`
    occurrences of each word in the other half. For each pair, the larger of both rates is returned.
    Rates are weighted means over classifiers that use neighbours on both sides (0.6), on the left
    (0.2) or on the right (0.2), because a unidirectional language model reads only one side.
    """
    places, labels = occurrences(sentences, pool)
    half = np.array([i % 2 for i, _ in places])
    counts = contexts(sentences, places, known_words(sentences))
    wrong = np.zeros((len(pool), len(pool)))
    for sides, weight in (("both", 0.6), ("left", 0.2), ("right", 0.2)):
        table = one_side(counts, sides)
        for seen in (0, 1):
            chances = neighbour_chances(table[half == seen], labels[half == seen], len(pool))
            chances = np.ascontiguousarray(chances.T)  # avoids a copy for every word
            for word in range(len(pool)):
                rows = np.flatnonzero((half != seen) & (labels == word))[:asked]
                scores = table[rows] @ chances
                wrong[word] += weight / 2 * (scores >= scores[:, word : word + 1]).mean(axis=0)
    wrong = np.maximum(wrong, wrong.T)
    np.fill_diagonal(wrong, 0)
    return wrong


def group_unlike(
    wrong: np.ndarray,
    frequency: np.ndarray,
    sizes: np.ndarray,
    *,
    factor: float = 3.0,
    rounds: int = 10,
) -> list[list[int]]:
    """Return groups of words that are rarely confused and whose frequencies differ by at most the
    ratio `factor`.

    Each group starts with a word that is rarely confused with other words. In turn, each group adds
    the unused word that is least confused with its members. Then, members are swapped with unused
    words in up to `rounds` rounds to reduce confusion.
    """
    free = np.ones(len(wrong), dtype=bool)
    groups = [[int(first)] for first in np.argsort(wrong.mean(axis=1))[: len(sizes)]]
    free[[group[0] for group in groups]] = False

    def best(rest: list[int]) -> int:
        near = (frequency <= factor * frequency[rest].min()) & (
            factor * frequency >= frequency[rest].max()
        )
        worst = np.where(free & near, wrong[rest].sum(axis=0), np.inf)
        if not np.isfinite(worst).any():
            raise InputError(
                f"no unused word is within a factor of {factor:g} of frequency "
                f"{frequency[rest].tolist()}"
            )
        return int(worst.argmin())

    for size in range(2, int(sizes.max()) + 1):
        for group in (group for group, wanted in zip(groups, sizes, strict=True) if wanted >= size):
            group.append(best(group))
            free[group[-1]] = False
    for _ in range(rounds):
        before = [list(group) for group in groups]
        for group in groups:
            for k, member in enumerate(group):
                free[member] = True
                group[k] = best(group[:k] + group[k + 1 :])
                free[group[k]] = False
        if groups == before:
            break
    return groups


def least_confused(
    groups: list[list[int]], wrong: np.ndarray, wanted: Mapping[int, int]
) -> list[list[int]]:
    """Return `wanted[size]` groups of each size, preferring groups whose most confused pair of
    words is rarely confused.
    """
    order = sorted(groups, key=lambda group: float(wrong[np.ix_(group, group)].max()))
    return [
        group
        for size, n in wanted.items()
        for group in [each for each in order if len(each) == size][:n]
    ]


def one_side(counts: csr_matrix, sides: str) -> csr_matrix:
    """Return the counts of the neighbours on one side, which are the context of a unidirectional
    language model.
    """
    middle = counts.get_shape()[1] // 2
    return {"both": counts, "left": counts[:, :middle], "right": counts[:, middle:]}[sides]


def frequent_words(sentences: Sequence[Words], counts: Counter[str], at_least: int) -> list[str]:
    """Return the words that may be joined into pseudo-words, most frequent first.

    The fifty most frequent words are left out. Words that are followed by an apostrophe in at least
    half of their occurrences are left out, too, because they are parts of words (`didn 't`).
    """
    before = Counter(
        word for line in sentences for word, after in pairwise(line) if after[0] in "'’"
    )
    return [
        word
        for word, n in counts.most_common()[_KEPT:]
        if n >= at_least
        and len(word) >= 3
        and word.isalpha()
        and word.isascii()
        and before[word] < n / 2
    ]


def as_frequent(frequency: np.ndarray, wanted: list[int], taken: list[int]) -> list[int]:
    """Return, for each word in `wanted`, a different unused word with the closest frequency."""
    free = np.ones(len(frequency), dtype=bool)
    free[taken] = False
    chosen = []
    for k in wanted:
        distance = np.where(free, np.abs(np.log(frequency / frequency[k])), np.inf)
        chosen.append(int(distance.argmin()))
        free[chosen[-1]] = False
    return chosen
