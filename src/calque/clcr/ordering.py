"""The best order of some words: a search over what a model says of pairs of them, or of their places.

A hypothesis is a beginning of the order. What the rest of it costs depends only on *which* words stand in the beginning, so
of hypotheses with the same words only the cheapest goes on, and a beam of 10 holds 10 different sets. With a beam as wide
as there are sets of a size the search is exact (Held & Karp 1962, "A dynamic programming approach to sequencing problems").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from calque.errors import SettingError, check_number
from calque.offsets import offsets_of


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

    def costs(of_sentence: np.ndarray, n: int) -> np.ndarray:  # [i, j]: −log p(i before j)
        table, (i, j) = np.zeros((n, n)), np.triu_indices(n, 1)
        table[i, j], table[j, i] = np.logaddexp(0, -of_sentence), np.logaddexp(0, of_sentence)
        return table

    return _searched(costs, True, scores, lengths, lengths * (lengths - 1) // 2, beam)


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
    places, cost = _searched(lambda some, n: -some.reshape(n, n), False, scores, lengths, lengths**2, beam)
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
    costs: Callable[[np.ndarray, int], np.ndarray],
    relative: bool,
    scores: np.ndarray,
    lengths: np.ndarray,
    sizes: np.ndarray,
    beam: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Search the order of every sentence.

    Args:
        costs: float64 `[n, n]` from the scores of a sentence of n words, see `_beam`.
        relative: see `_beam`.
        sizes: number of scores of each sentence.
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
    keys = np.random.default_rng(0).integers(1, 2**63, max(lengths, default=0))
    for s, n in enumerate(lengths):
        table = costs(scores[begins[s] : begins[s + 1]].astype(np.float64), int(n))
        cost[s] = _beam(table, relative, beam, keys, order[words[s] : words[s + 1]])
    return order, cost


@njit(cache=True)
def _beam(costs, relative, beam, keys, chosen):
    """Fill `chosen` with what is taken at each step, and return what that costs.

    If `relative`, the items taken are words, one for each place from left to right, and `costs[i, j]` is what i before j
    costs. Else they are places, one for each word, and `costs[i, m]` is what place m costs word i.

    Args:
        keys: a random number for each item. A set of items is known by the exclusive or of theirs: two sets of one
            sentence have the same with a probability of 2⁻⁶³.
    """
    n = len(costs)
    member, spare_member = np.zeros((beam, n), np.bool_), np.zeros((beam, n), np.bool_)
    code, spare_code = np.zeros(beam, np.int64), np.zeros(beam, np.int64)
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
                if member[h, i]:
                    continue
                cost = total[h] + (rest[h, i] if relative else costs[step, i])
                if kept == beam and cost >= more[beam - 1]:
                    continue
                same, k = code[h] ^ keys[i], 0
                while k < kept and spare_code[k] != same:
                    k += 1
                if k < kept:
                    if cost >= more[k]:
                        continue
                elif kept < beam:
                    kept += 1
                else:
                    k = beam - 1
                while k > 0 and more[k - 1] > cost:  # what stood at k goes, what costs more moves up
                    more[k], before[k], new[k], spare_code[k] = (
                        more[k - 1],
                        before[k - 1],
                        new[k - 1],
                        spare_code[k - 1],
                    )
                    k -= 1
                more[k], before[k], new[k], spare_code[k] = cost, h, i, same
        for k in range(kept):
            spare_member[k] = member[before[k]]
            spare_member[k, new[k]] = True
            if relative:
                for j in range(n):
                    spare_rest[k, j] = rest[before[k], j] - costs[j, new[k]]
        member, spare_member = spare_member, member
        code, spare_code = spare_code, code
        rest, spare_rest = spare_rest, rest
        total, more = more, total
        alive = kept
    k = 0
    for step in range(n - 1, -1, -1):
        chosen[step] = item[step, k]
        k = parent[step, k]
    return total[0]
