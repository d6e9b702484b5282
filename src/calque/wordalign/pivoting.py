"""Links between two languages by way of a third, where both have parallel text with the same sentences in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calque.errors import SettingError
from calque.offsets import ranges
from calque.pairs import WordPairs
from calque.storage import WORDS, scalar, to_numpy
from calque.text import ParallelCorpus

_BETWEEN = "\n"  # which no word has in it


@dataclass(frozen=True)
class Pivoted:
    """Parallel text of two languages that was made from two texts with a third.

    Attributes:
        corpus: its sentence pairs.
        pairs: its links.
        of: numbers of the two texts that it was made from.
    """

    corpus: ParallelCorpus
    pairs: WordPairs
    of: tuple[int, int]


def pivoted(corpora: Sequence[ParallelCorpus], pairs: Sequence[WordPairs], pivot: str) -> list[Pivoted]:
    """Parallel text for every two languages that have the same sentences in a third one: of `en-de` and `en-fr` a `de-fr`.

    Two sentences are partners if their translations in the pivot are word by word the same; where a sentence occurs several
    times, its first occurrence in one text goes with the first in the other, and so on. Their words are linked if both are
    linked to the same word of the pivot; `compose` says how.

    Args:
        corpora, pairs: texts between the pivot and another language, and their links.
        pivot: the language that they have in common.

    Returns:
        the text of each two that share a sentence with a link in it, in their order; two texts in the same language have none.

    Raises:
        SettingError: a text without the pivot.
    """
    turned = []
    for corpus, linked in zip(corpora, pairs, strict=True):
        linked.check(corpus)
        own = corpus.side(pivot) == "source"
        turned.append((corpus.swapped(), linked.swapped()) if own else (corpus, linked))
    numbers = _numbered([corpus.table["target"] for corpus, _ in turned])
    found = []
    for a, b in combinations(range(len(turned)), 2):
        (first, of_first), (second, of_second) = turned[a], turned[b]
        if first.langs == second.langs:
            continue
        left, right = _matched(numbers[a], numbers[b])
        links = compose(of_first.take(left), of_second.take(right))
        has_links = np.diff(links.offsets()) > 0
        left, right, links = left[has_links], right[has_links], links.take(np.flatnonzero(has_links))
        if len(left):
            sides = first.take(left).table["source"], second.take(right).table["source"]
            corpus = ParallelCorpus(
                pa.table(dict(zip(("source", "target"), sides, strict=True))), (first.langs[0], second.langs[0]),
                segmenters=(first.segmenters[0], second.segmenters[0]),
            )  # fmt: skip
            found.append(Pivoted(corpus, links, (a, b)))
    return found


def compose(first: WordPairs, second: WordPairs) -> WordPairs:
    """Links between the sources of two sets of links with the same targets: i and j are linked if some word of the target is
    linked to both.

    The posterior of a link is the product of the two it is made of, as if these were independent, and the largest where it
    can be made in several ways; None where one set has none. A link is possible rather than sure if one of the two is.

    Args:
        first, second: of as many sentences; target k of a sentence is the same word in both.
    """
    if first.n_sentences != second.n_sentences:
        raise SettingError(f"links of {first.n_sentences:,} sentences cannot be composed with {second.n_sentences:,}")
    width = 1 + max((int(each.target.max()) for each in (first, second) if len(each)), default=0)
    keys = [each.sentence * width + each.target for each in (first, second)]
    order = np.argsort(keys[1], kind="stable")
    begin, end = (np.searchsorted(keys[1][order], keys[0], side=side) for side in ("left", "right"))
    left = np.repeat(np.arange(len(first)), end - begin)
    right = order[ranges(begin, end - begin)]
    posterior = None
    if first.posterior is not None and second.posterior is not None:
        posterior = first.posterior[left] * second.posterior[right]
    possible = first.possible[left] | second.possible[right]
    sentence, source, target = first.sentence[left], first.source[left], second.source[right]
    # The best way to make a link first: sure before possible, then by posterior.
    ways = np.zeros(len(left)) if posterior is None else -posterior
    best = np.lexsort((ways, possible, target, source, sentence))
    same = np.zeros(len(best), dtype=bool)
    for column in (sentence, source, target):
        same[1:] |= np.diff(column[best]) != 0
    same[:1] = True
    kept = best[same]
    return WordPairs(
        sentence[kept], source[kept], target[kept], n_sentences=first.n_sentences, possible=possible[kept],
        posterior=None if posterior is None else posterior[kept],
    )  # fmt: skip


def _numbered(columns: Sequence[pa.ChunkedArray]) -> list[np.ndarray]:
    """A number for each sentence, equal for equal sentences of all texts, int64 `[n_sentences]`; −1 for empty ones."""
    chunks = [chunk for column in columns for chunk in column.chunks]
    texts = pc.call_function("binary_join", [pa.chunked_array(chunks, type=WORDS), scalar(_BETWEEN)])
    encoded = texts.dictionary_encode().unify_dictionaries()
    numbers = np.concatenate([np.zeros(0, np.int64), *(to_numpy(chunk.indices) for chunk in encoded.chunks)])
    empty = to_numpy(pc.call_function("binary_length", [texts])) == 0
    return np.split(np.where(empty, -1, numbers), np.cumsum([len(column) for column in columns])[:-1])


def _matched(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of equal numbers in two lists, each place once, in the order of the first; −1 has no equal."""
    keys = [_with_counts(numbers) for numbers in (first, second)]
    _, left, right = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    left, right = (np.flatnonzero(n >= 0)[places] for n, places in ((first, left), (second, right)))
    order = np.argsort(left)
    return left[order], right[order]


def _with_counts(numbers: np.ndarray) -> np.ndarray:
    """Each number that is no −1 with how often it came before, as one number: int64, all different."""
    numbers = numbers[numbers >= 0]
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers)
    before = np.empty(len(numbers), dtype=np.int64)
    before[order] = ranges(np.zeros(len(counts), dtype=np.int64), counts)
    return (numbers << 32) + before
