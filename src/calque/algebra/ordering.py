"""The best order of some words: a search over what a model says of pairs of them, or of their places.

A hypothesis is a beginning of the order. What the rest of it costs depends only on *which* words stand in the beginning, so
of hypotheses with the same words only the cheapest goes on, and a beam of 10 holds 10 different sets. With a beam as wide
as there are sets of a size the search is exact (Held & Karp 1962, "A dynamic programming approach to sequencing problems").
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numba import njit

from calque.errors import SettingError, check_number
from calque.offsets import offsets_of

_ALONE = 1 << 21  # steps of a search below which threads cost more than they save


def relative_order(scores: np.ndarray, lengths: np.ndarray, *, beam: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """The order of the words of each sentence from which word of a pair stands first (CLCR, Eq. 9):

        argmin over orders m of  Σ over pairs with m_i < m_j of −log p(i before j)

    built from left to right: to place word i next decides all its pairs with the words that are not placed yet.

    Args:
        scores: `[n_pairs]`, log-odds that word i stands before word j, for i < j: those of a sentence row by row, (0, 1),
            (0, 2), …, (1, 2), …, one sentence after the other.
        lengths: int `[n_sentences]`, words of each sentence.
        beam: how many beginnings of the order are followed at once; 1 is greedy.

    Returns:
        the numbers of the words in the order found, counted from 0 in each sentence, int64 `[n_words]`; and its cost, float64
        `[n_sentences]`. Of beginnings of the same cost the one is preferred that goes on from the cheaper one, and then
        the one with the earlier word.

    Raises:
        SettingError: scores that are not finite, or not as many as the lengths ask for.

    Example:
        >>> relative_order(np.array([4.0, -3.0, -5.0]), np.array([3]))[0]  # (0, 1), (0, 2), (1, 2)
        array([2, 0, 1])
    """
    lengths = np.ascontiguousarray(lengths, dtype=np.int64)
    return _searched(_relative, scores, lengths, lengths * (lengths - 1) // 2, beam)


def absolute_order(scores: np.ndarray, lengths: np.ndarray, *, beam: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """The order of the words of each sentence from where each of them stands (CLCR, Eq. 7):

        argmin over orders m of  Σ_i −log p(m_i | i)

    word by word: each takes a place that no word before it has. Of n words the places are 0 … n − 1.

    Args:
        scores: `[sum of the squares of the lengths]`, log p of word i (row) at place m (column), row by row.
        lengths, beam: as in `relative_order`.

    Returns:
        as `relative_order`; of the same cost, the earlier place is preferred.

    Raises:
        SettingError: as there.

    Example:
        >>> absolute_order(np.log([0.1, 0.9, 0.6, 0.4]), np.array([2]))[0]
        array([1, 0])
    """
    lengths = np.ascontiguousarray(lengths, dtype=np.int64)
    places, cost = _searched(_absolute, scores, lengths, lengths**2, beam)
    return inverse(places, lengths), cost


def inverse(order: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The place of each word in an order, counted from 0 in its sentence; or the order from the places.

    Args:
        order: int64 `[n_words]`, in each sentence every number from 0 on once.
        lengths: int `[n_sentences]`.
    """
    offsets = offsets_of(lengths)
    begin = np.repeat(offsets[:-1], lengths)
    places = np.empty(len(order), dtype=np.int64)
    places[begin + order] = np.arange(len(order)) - begin
    return places


def _searched(
    kernel: Callable[..., None], scores: np.ndarray, lengths: np.ndarray, sizes: np.ndarray, beam: int
) -> tuple[np.ndarray, np.ndarray]:
    """Run a kernel over all sentences, in shares of about equal work where there is enough for several threads.

    Args:
        sizes: scores of each sentence.
    """
    check_number("beam", beam, least=1, whole=True)
    if len(lengths) and lengths.min() < 0:
        raise SettingError(f"a sentence of {lengths.min()} words")
    begins, words = offsets_of(sizes), offsets_of(lengths)
    if scores.shape != (begins[-1],):
        raise SettingError(
            f"scores of shape {scores.shape} for {len(lengths)} sentences, expected {begins[-1]} in a row"
        )
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        sentence = int(np.searchsorted(begins, wrong[0], side="right")) - 1
        raise SettingError(f"a score of sentence {sentence} is {scores[wrong[0]]}, expected finite numbers")
    order, cost = np.empty(words[-1], dtype=np.int64), np.zeros(len(lengths))
    work = offsets_of(lengths**2 * beam)
    count = min(torch.get_num_threads(), int(work[-1] // _ALONE) + 1)
    bounds = np.searchsorted(work, np.linspace(0, work[-1], count + 1)[1:-1])
    bounds = np.array([0, *bounds, len(lengths)], dtype=np.int64)
    scores = np.ascontiguousarray(scores)

    def run(share: int) -> None:
        kernel(scores, begins, words, bounds[share], bounds[share + 1], beam, order, cost)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, range(count)))
    return order, cost


@njit(cache=True, nogil=True)
def _relative(scores, begins, words, first, last, beam, order, cost):
    for s in range(first, last):
        n = words[s + 1] - words[s]
        costs = np.zeros((n, n))  # [i, j]: −log p(i before j)
        place = begins[s]
        for i in range(n):
            for j in range(i + 1, n):
                score = np.float64(scores[place])
                rest = np.log1p(np.exp(-abs(score)))
                costs[i, j], costs[j, i] = rest + max(-score, 0.0), rest + max(score, 0.0)
                place += 1
        cost[s] = _beam(costs, True, beam, order[words[s] : words[s + 1]])


@njit(cache=True, nogil=True)
def _absolute(scores, begins, words, first, last, beam, order, cost):
    for s in range(first, last):
        n = words[s + 1] - words[s]
        costs = np.empty((n, n))  # [i, m]: −log p(word i at place m)
        for i in range(n):
            for m in range(n):
                costs[i, m] = -np.float64(scores[begins[s] + i * n + m])
        cost[s] = _beam(costs, False, beam, order[words[s] : words[s + 1]])


@njit(cache=True, nogil=True)
def _holds(members, item):
    return (members[item >> 6] >> np.uint64(item & 63)) & np.uint64(1) != np.uint64(0)


@njit(cache=True, nogil=True)
def _add(members, item):
    members[item >> 6] |= np.uint64(1) << np.uint64(item & 63)


@njit(cache=True, nogil=True)
def _same(one, item, other, another):
    """Whether `one` with `item` and `other` with `another` are the same set, of which neither had it before."""
    if not (_holds(other, item) and _holds(one, another)):
        return False
    for b in range(len(one)):
        differing = one[b] ^ other[b]
        if item >> 6 == b:
            differing ^= np.uint64(1) << np.uint64(item & 63)
        if another >> 6 == b:
            differing ^= np.uint64(1) << np.uint64(another & 63)
        if differing != np.uint64(0):
            return False
    return True


@njit(cache=True, nogil=True)
def _beam(costs, relative, beam, chosen):
    """Fills `chosen`, what was taken at each step, and returns what that costs.

    What is taken at a step are words, the one that stands next, if `relative`; else places, of the word that is next.
    """
    n = len(costs)
    members, spare = np.zeros((beam, (n + 63) >> 6), np.uint64), np.zeros((beam, (n + 63) >> 6), np.uint64)
    total, more = np.zeros(beam), np.empty(beam)
    # Relative: what each word would cost next, its pairs with all the words that are not placed.
    rest, spare_rest = np.zeros((beam, n)), np.zeros((beam, n))
    parent, item = np.empty((n, beam), np.int32), np.empty((n, beam), np.int32)
    if relative:
        for i in range(n):
            for j in range(n):
                rest[0, i] += costs[i, j]  # zero on the diagonal
    alive = 1
    for step in range(n):
        kept = 0
        before, new = parent[step], item[step]
        for h in range(alive):
            for i in range(n):
                if _holds(members[h], i):
                    continue
                cost = total[h] + (rest[h, i] if relative else costs[step, i])
                if kept == beam and cost >= more[beam - 1]:
                    continue
                k = 0
                while k < kept and not _same(members[h], i, members[before[k]], new[k]):
                    k += 1
                if k < kept:
                    if cost >= more[k]:
                        continue
                elif kept < beam:
                    kept += 1
                else:
                    k = beam - 1
                while k > 0 and more[k - 1] > cost:  # what stood at k goes, what costs more moves up
                    more[k], before[k], new[k] = more[k - 1], before[k - 1], new[k - 1]
                    k -= 1
                more[k], before[k], new[k] = cost, h, i
        for k in range(kept):
            spare[k] = members[before[k]]
            _add(spare[k], new[k])
            if relative:
                for j in range(n):
                    spare_rest[k, j] = rest[before[k], j] - costs[j, new[k]]
        members, spare = spare, members
        rest, spare_rest = spare_rest, rest
        total, more = more, total
        alive = kept
    k = 0
    for step in range(n - 1, -1, -1):
        chosen[step] = item[step, k]
        k = parent[step, k]
    return total[0]
