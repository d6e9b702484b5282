"""The compiled loops of `dropped`: one word after the other, each with a random state of its own."""

from __future__ import annotations

import numpy as np
from numba import njit

from calque.wordalign.compiled import GOLDEN, mix, unit


@njit(cache=True, nogil=True)
def states(start, sentences, counts):
    """A random state for each word, from its sentence's number and its place there; uint64 `[counts.sum()]`."""
    found = np.empty(counts.sum(), np.uint64)
    k = 0
    for s in range(len(sentences)):
        sentence = mix(start + GOLDEN * np.uint64(sentences[s] + 1))
        for place in range(counts[s]):
            found[k] = mix(sentence + GOLDEN * np.uint64(place + 1))
            k += 1
    return found


@njit(cache=True, nogil=True)
def longest_first(types, states, share, most, nodes, edges, steps, numbers):
    """Greedy cuts: from each letter on the longest subword that is not left out; see `SubwordDropout`.

    Args:
        types, states: of each word.
        share: of subwords that are left out.
        most: subwords of all words at most.
        nodes: `[n_types + 1]`, where the letters of each type are.
        edges: `[n_letters + 1]`, where the subwords are that begin there, longest first.
        steps, numbers: letters and id of each subword.

    Returns:
        ids of all words, and how many each has; −1 where a letter cannot be passed.
    """
    ids, counts = np.empty(most, np.int32), np.zeros(len(types), np.int64)
    filled = 0
    for w in range(len(types)):
        state, letter, end, first = states[w], nodes[types[w]], nodes[types[w] + 1], filled
        while letter < end:
            taken = -1
            for edge in range(edges[letter], edges[letter + 1]):
                if steps[edge] > 1:
                    state += GOLDEN
                    if unit(state) < share:
                        continue
                taken = edge
                break
            if taken < 0:
                break
            ids[filled] = numbers[taken]
            filled += 1
            letter += steps[taken]
        if letter < end:
            filled, counts[w] = first, -1
        else:
            counts[w] = filled - first
    return ids[:filled].copy(), counts


@njit(cache=True, nogil=True)
def merged(types, states, share, most, offsets, symbols, keys, ranks, joined):
    """A BPE's merges, of which each that could come next is left out in some steps; see `SubwordDropout`.

    Args:
        types, states, share, most: see `longest_first`.
        offsets, symbols: the letters of each type, −1 between parts that nothing is joined across.
        keys, ranks, joined: pairs in order, with the rank and the result of each.

    Returns:
        see `longest_first`.
    """
    ids, counts = np.empty(most, np.int32), np.zeros(len(types), np.int64)
    row, pair = np.empty(most + 1, np.int32), np.empty(most + 1, np.int64)
    filled = 0
    for w in range(len(types)):
        state, begin, stop = states[w], offsets[types[w]], offsets[types[w] + 1]
        while begin < stop:  # a part of the word after the other: each ends when nothing is left to join in it
            end = begin
            while end < stop and symbols[end] >= 0:
                end += 1
            n = end - begin
            row[:n] = symbols[begin:end]
            begin = end + 1
            while n > 1:
                best = -1
                for i in range(n - 1):
                    pair[i] = -1
                    key = (np.int64(row[i]) << 32) + np.int64(row[i + 1])
                    place = np.searchsorted(keys, key)
                    if place == len(keys) or keys[place] != key:
                        continue
                    state += GOLDEN
                    if unit(state) < share:
                        continue
                    pair[i] = place
                    if best < 0 or ranks[place] < ranks[best]:
                        best = place
                if best < 0:
                    break
                i, kept = 0, 0
                while i < n:
                    if i < n - 1 and pair[i] == best:
                        row[kept] = joined[best]
                        i += 2
                    else:
                        row[kept] = row[i]
                        i += 1
                    kept += 1
                n = kept
            ids[filled : filled + n] = row[:n]
            filled += n
            counts[w] += n
        if not counts[w]:
            counts[w] = -1
    return ids[:filled].copy(), counts
