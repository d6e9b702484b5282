"""Dependency trees: the best tree of a table of arc scores, and whether given heads make a tree."""

from __future__ import annotations

import numpy as np
from numba import njit

from calque.errors import SettingError


def maximum_spanning_tree(scores: np.ndarray, *, single_root: bool = True) -> np.ndarray:
    """The tree over the words of a sentence whose arcs have the largest sum:

        argmax over trees h of  sum over i of scores[i, h(i)]

    Chu & Liu (1965) and Edmonds (1967): every word takes its best head, and a cycle is contracted to one word, on which
    an arc gains what it displaces. Following Gabow, Galil, Spencer & Tarjan (1986), the cycles are found by growing a
    path backwards, in O(n²), until the whole sentence is one contracted word; expanding that from any word gives the
    best tree in which this word is the root. So exactly one root ("Please mind the root", Zmigrod, Vieira & Cotterell
    2020) needs no penalty in the arithmetic and no second pass: the artificial root takes no part in the contraction,
    and the word on which its arc gains the most is chosen at the end. Where every word's best head makes a tree already,
    which is what a trained parser mostly finds, there is nothing to contract (Stanojević & Cohen 2021, "A root of a
    problem").

    Args:
        scores: `[n, n + 1]`, of word `i + 1` as dependent (row) with each head (column): 0 the artificial root, `j` the
            j-th word. The diagonal `scores[i, i + 1]` is ignored. −inf forbids an arc; it is taken only where no tree
            without a forbidden arc exists, and then as few as possible.
        single_root: exactly one word hangs on the root; otherwise one or more.

    Returns:
        heads, int32 `[n]`: 0 for the root, else the number of the head, counted from 1. Sums in float64. Of several best
        trees it is always the same one, but no particular one.

    Raises:
        SettingError: not of that shape, or a score that is NaN or +inf.

    Example:
        >>> maximum_spanning_tree(np.array([[9.0, 0.0, 5.0], [8.0, 6.0, 0.0]]))
        array([0, 1], dtype=int32)
    """
    scores = np.asarray(scores)
    if scores.ndim != 2 or scores.shape[1] != scores.shape[0] + 1:
        raise SettingError(f"arc scores of shape {scores.shape}, expected [words, words + 1]")
    return maximum_spanning_trees(scores[None], np.array([len(scores)]), single_root=single_root)


def maximum_spanning_trees(scores: np.ndarray, lengths: np.ndarray, *, single_root: bool = True) -> np.ndarray:
    """`maximum_spanning_tree` of each sentence of a batch.

    Args:
        scores: `[n_sentences, words, words + 1]`, as there; what lies behind a sentence's length is not looked at.
        lengths: int64 `[n_sentences]`.

    Returns:
        heads of all words of all sentences in a row, int32 `[sum of the lengths]`.

    Raises:
        SettingError: as there, or a sentence longer than the table.
    """
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    lengths = np.ascontiguousarray(lengths, dtype=np.int64)
    if scores.ndim != 3 or scores.shape[2] != scores.shape[1] + 1 or len(scores) != len(lengths):
        raise SettingError(
            f"arc scores of shape {scores.shape} for {len(lengths)} sentences, expected [sentences, words, words + 1]"
        )
    if len(lengths) and (lengths.min() < 0 or lengths.max() > scores.shape[1]):
        raise SettingError(f"sentences of {lengths.min()} to {lengths.max()} words in a table for {scores.shape[1]}")
    heads = np.empty(lengths.sum(), dtype=np.int64)
    wrong = _decode(scores, lengths, single_root, heads)
    if wrong >= 0:
        raise SettingError(f"an arc score of sentence {wrong} is NaN or +inf, expected finite numbers or -inf")
    return heads.astype(np.int32)


def trees_ok(heads: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Which sentences' heads make a tree with exactly one root; nothing at all, a sentence without words, counts as one.

    Args:
        heads: int `[n_words]`: 0 for the root, else which word of the same sentence, counted from 1.
        offsets: int64 `[n_sentences + 1]`, where each sentence begins.

    Returns:
        bool `[n_sentences]`.
    """
    return _check(np.ascontiguousarray(heads, dtype=np.int64), np.ascontiguousarray(offsets, dtype=np.int64))


@njit(cache=True, nogil=True)
def _n_roots(heads, seen):
    """Number of words whose head is 0, or −1 if some word does not lead up to the root; `seen` is work space, `[n]`."""
    n, roots = len(heads), 0
    for word in range(n):
        seen[word] = 0
    for first in range(n):
        word = first + 1
        while word > 0 and seen[word - 1] == 0:
            seen[word - 1] = first + 1
            word = heads[word - 1]
            if word < 0 or word > n:
                return -1
        if word > 0 and seen[word - 1] == first + 1:  # met on this very walk: a cycle
            return -1
        roots += heads[first] == 0
    return roots


@njit(cache=True, nogil=True)
def _check(heads, offsets):
    ok = np.ones(len(offsets) - 1, np.bool_)
    seen = np.empty(len(heads), np.int64)
    for k in range(len(ok)):
        begin, end = offsets[k], offsets[k + 1]
        if end > begin:
            ok[k] = _n_roots(heads[begin:end], seen[begin:end]) == 1
    return ok


@njit(cache=True, nogil=True)
def _decode(scores, lengths, single_root, heads):
    """Fills `heads`; returns the first sentence with a score that is NaN or +inf, or −1."""
    begin = 0
    for k in range(len(lengths)):
        n = lengths[k]
        of_sentence = heads[begin : begin + n]
        if not greedy(scores[k], n, of_sentence):
            return k
        roots = _n_roots(of_sentence, np.empty(n, np.int64))
        if roots < 0 or (single_root and roots > 1):
            edmonds(scores[k], n, single_root, of_sentence)
        begin += n
    return -1


@njit(cache=True, nogil=True)
def greedy(scores, n, heads):
    """The best head of each word; a word whose arcs are all forbidden gets none. False for NaN or +inf."""
    for i in range(n):
        heads[i], best = -1, -np.inf
        for j in range(n + 1):
            if j == i + 1:
                continue
            if not scores[i, j] < np.inf:
                return False
            if scores[i, j] > best:
                heads[i], best = j, scores[i, j]
    return True


@njit(cache=True, nogil=True)
def _forbidden(scores, n):
    """What to count a forbidden arc as: so little that no tree with fewer of them, whatever its arcs, is worse."""
    low, high = np.inf, -np.inf
    for i in range(n):
        for j in range(n + 1):
            if j != i + 1 and scores[i, j] > -np.inf:
                low, high = min(low, scores[i, j]), max(high, scores[i, j])
    return low - n * (high - low) - max(1.0, abs(low)) if low <= high else 0.0


@njit(cache=True, nogil=True)
def edmonds(scores, n, single_root, heads):
    # The nodes are the words, or the root and the words. Arcs into the root may weigh anything, as no tree has them.
    skip = 1 if single_root else 0  # columns of `scores` that are no node
    size = n + 1 - skip
    worst = _forbidden(scores, n)
    weight = np.zeros((size, size))  # of the best arc into a node (row) out of a node (column)
    head, dependent = np.empty((size, size), np.int32), np.empty((size, size), np.int32)  # its original ends
    for v in range(size):
        for u in range(size):
            i, j = v + skip - 1, u + skip  # row and column in `scores`
            if i >= 0:
                weight[v, u] = max(scores[i, j], worst)
            head[v, u], dependent[v, u] = u, v
        weight[v, v] = -np.inf
    # Contracted nodes get numbers from `size` on; they live in the row and the column of one of their parts.
    parent, gain = np.full(2 * size, -1), np.zeros(2 * size)
    in_head, in_dependent = np.empty(2 * size, np.int32), np.empty(2 * size, np.int32)
    number, place = np.arange(size), np.full(size, -1)
    path = np.empty(size, np.int64)
    path[0], place[0], length = 0, 0, 1
    alive, top = size, size - 1
    while alive > 1:
        v = path[length - 1]
        u = 0
        for x in range(1, size):
            if weight[v, x] > weight[v, u]:
                u = x
        node = number[v]
        gain[node], in_head[node], in_dependent[node] = weight[v, u], head[v, u], dependent[v, u]
        if place[u] < 0:
            path[length], place[u] = u, length
            length += 1
            continue
        top += 1
        first = place[u]
        for k in range(first, length):
            c = path[k]
            parent[number[c]] = top
            for x in range(size):
                weight[c, x] -= gain[number[c]]
        for k in range(first + 1, length):
            c = path[k]
            for x in range(size):
                if weight[c, x] > weight[u, x]:
                    weight[u, x], head[u, x], dependent[u, x] = weight[c, x], head[c, x], dependent[c, x]
                if weight[x, c] > weight[x, u]:
                    weight[x, u], head[x, u], dependent[x, u] = weight[x, c], head[x, c], dependent[x, c]
                weight[x, c] = -np.inf
            place[c] = -1
        weight[u, u] = -np.inf
        number[u] = top
        alive -= length - 1 - first
        length = first + 1
    # Where the artificial root's arc enters, one in-arc is displaced in every contracted node around that word.
    lost = np.zeros(top + 1)
    for node in range(top - 1, -1, -1):
        lost[node] = lost[parent[node]] + gain[node]
    entry = 0
    if single_root:
        best = -np.inf
        for v in range(size):
            value = max(scores[v, 0], worst) - lost[v]
            if value > best:
                entry, best = v, value
    in_head[top], in_dependent[top] = -1, entry
    for node in range(top, size - 1, -1):
        part = in_dependent[node]
        while parent[part] != node:
            part = parent[part]
        in_head[part], in_dependent[part] = in_head[node], in_dependent[node]
    for v in range(1 - skip, size):
        heads[v + skip - 1] = in_head[v] + skip if in_head[v] >= 0 else 0
