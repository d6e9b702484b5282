"""Words as Arrow keeps them, bytes one after the other: which are the same, and how a WordPiece vocabulary cuts them.

Strings of Arrow are valid UTF-8: whoever makes or maps them checks that.
"""

from __future__ import annotations

import numpy as np

from calque.wordalign.compiled import loop
from calque.wordalign.constants import DROPPED, ENDS, IRREGULAR, LETTER, LONE, POINT_BITS, UNSEEN

_U = np.uint64
_START, _PRIME = _U(0xCBF29CE484222325), _U(0x100000001B3)
_SPREAD, _32 = _U(0x9E3779B97F4A7C15), _U(32)
_NONE = _U(0)


@loop
def number(offsets, data, begin, end, known, kept, ends, hashes, slots, numbers, fresh):
    """The number of each word's form, until there is no room for another form.

    Args:
        offsets, data: int32 and bytes, where each word is.
        begin, end: words to number.
        known: forms so far.
        kept, ends: their bytes, and where each begins and ends, int64; changed.
        hashes: uint64, of each form; changed.
        slots: int32, a power of two: 1 + the form that is found there, 0 for none; changed.
        numbers: int64 `[n_words]`, to be filled.
        fresh: int64, the words that are the first of their form; to be filled.

    Returns:
        the first word that is not numbered, the forms now, and how many `fresh` there are.
    """
    mask, found = _U(len(slots) - 1), 0
    for w in range(begin, end):
        low, high = np.int64(offsets[w]), np.int64(offsets[w + 1])
        if known == len(hashes) or ends[known] + high - low > len(kept):
            return w, known, found
        key = _START
        for k in range(low, high):
            key = (key ^ _U(data[k])) * _PRIME
        key = (key ^ (key >> _32)) * _SPREAD
        key = key ^ (key >> _32)
        place = key & mask
        while True:
            form = np.int64(slots[place]) - 1
            if form < 0:
                form = known
                slots[place], hashes[form] = form + 1, key
                for k in range(high - low):
                    kept[ends[form] + k] = data[low + k]
                ends[form + 1] = ends[form] + high - low
                fresh[found] = w
                found += 1
                known += 1
                break
            if hashes[form] == key and _same(kept, ends[form], ends[form + 1], data, low, high):
                break
            place = (place + _U(1)) & mask
        numbers[w] = form
    return end, known, found


@loop
def _same(kept, first, last, data, low, high):
    if last - first != high - low:
        return False
    for k in range(high - low):  # noqa: SIM110 (the compiler knows no generators)
        if kept[first + k] != data[low + k]:
            return False
    return True


@loop
def place_forms(known, hashes, slots):
    """Put the forms into new, larger slots."""
    mask = _U(len(slots) - 1)
    for form in range(known):
        place = hashes[form] & mask
        while slots[place]:
            place = (place + _U(1)) & mask
        slots[place] = form + 1


@loop
def _letter(data, k):
    """The code point whose first byte is `data[k]`, and where the next begins."""
    byte = np.int64(data[k])
    if byte < 0x80:
        return byte, k + 1
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | (np.int64(data[k + 1]) & 0x3F), k + 2
    if byte < 0xF0:
        return (byte & 0x0F) << 12 | (np.int64(data[k + 1]) & 0x3F) << 6 | (np.int64(data[k + 2]) & 0x3F), k + 3
    rest = (np.int64(data[k + 1]) & 0x3F) << 12 | (np.int64(data[k + 2]) & 0x3F) << 6 | (np.int64(data[k + 3]) & 0x3F)
    return (byte & 0x07) << 18 | rest, k + 4


@loop
def unseen(offsets, data, words, kinds, found):
    """Code points of some words that have no kind yet, each once, into `found`; they become irregular. Returns how many."""
    n = 0
    for i in range(len(words)):
        k, stop = np.int64(offsets[words[i]]), np.int64(offsets[words[i] + 1])
        while k < stop:
            point, k = _letter(data, k)
            if kinds[point] == UNSEEN:
                kinds[point] = IRREGULAR
                found[n] = point
                n += 1
    return n


@loop
def _child(keys, children, node, point):
    """The node below another, 0 for none: there is no way back to the root."""
    mask, key = _U(len(keys) - 1), (_U(node) << _U(POINT_BITS) | _U(point)) + _U(1)
    place = key * _SPREAD
    place = (place ^ (place >> _32)) & mask
    while keys[place] != _NONE:
        if keys[place] == key:
            return np.int64(children[place])
        place = (place + _U(1)) & mask
    return np.int64(0)


@loop
def plant(points, offsets, subwords, root, nodes, keys, children, accepts):
    """Put subwords into a tree, a node for each beginning of one.

    Args:
        points, offsets: int32 and int64, the code points of each.
        subwords: int32, their ids.
        root: node at which they begin.
        nodes: there are so far.
        keys, children: uint64 and int32, a power of two: the node below another by its letter; changed.
        accepts: int32, the subword that ends at a node, −1 for none; changed.

    Returns:
        nodes now.
    """
    mask = _U(len(keys) - 1)
    for s in range(len(subwords)):
        node = np.int64(root)
        for k in range(offsets[s], offsets[s + 1]):
            below = _child(keys, children, node, points[k])
            if below == 0:
                key = (_U(node) << _U(POINT_BITS) | _U(points[k])) + _U(1)
                place = key * _SPREAD
                place = (place ^ (place >> _32)) & mask
                while keys[place] != _NONE:
                    place = (place + _U(1)) & mask
                below = np.int64(nodes)
                keys[place], children[place] = key, below
                nodes += 1
            node = below
        accepts[node] = subwords[s]
    return nodes


@loop
def longest_first(offsets, data, words, kinds, mapped, keys, children, accepts, longest, unknown, letters, ids, counts):
    """Words cut from the left, each time after the longest subword that fits; see `WordPiece`.

    Args:
        offsets, data: int32 and bytes, where each word is.
        words: int64, which of them.
        kinds, mapped: of code points: what each does to a word, and what it is read as.
        keys, children, accepts: see `plant`; a part of a word begins at node 0, what is left of it at node 1.
        longest: letters of a part of a word; one that has more is unknown.
        unknown: the subword for it.
        letters: int32, room for those of the longest word.
        ids: int32, room for the subwords of all words.
        counts: int64 `[len(words)]`, how many each has, −1 for one that the tokenizer itself must cut; to be filled.

    Returns:
        subwords of all words.
    """
    filled = np.int64(0)
    for i in range(len(words)):
        k, stop = np.int64(offsets[words[i]]), np.int64(offsets[words[i] + 1])
        first, n, regular = filled, 0, True
        while k < stop:
            point, k = _letter(data, k)
            kind = kinds[point]
            if kind == LETTER:
                letters[n] = mapped[point]
                n += 1
            elif kind in (LONE, ENDS):
                filled = _part(letters, n, keys, children, accepts, longest, unknown, ids, filled)
                n = 0
                if kind == LONE:
                    letters[0] = mapped[point]
                    filled = _part(letters, 1, keys, children, accepts, longest, unknown, ids, filled)
            elif kind != DROPPED:
                regular = False
                break
        if regular:
            filled = _part(letters, n, keys, children, accepts, longest, unknown, ids, filled)
            counts[i] = filled - first
        else:
            filled = first
            counts[i] = -1
    return filled


@loop
def _part(letters, n, keys, children, accepts, longest, unknown, ids, filled):
    """The subwords of a part of a word, behind those that are there; one unknown subword if it cannot be spelt."""
    first, start = filled, 0
    if n > longest:
        ids[filled] = unknown
        return filled + 1
    while start < n:
        node, taken, after = np.int64(1 if start else 0), np.int64(-1), start
        for k in range(start, n):
            node = _child(keys, children, node, letters[k])
            if node == 0:
                break
            if accepts[node] >= 0:
                taken, after = np.int64(accepts[node]), k + 1
        if taken < 0:
            ids[first] = unknown
            return first + 1
        ids[filled] = taken
        filled += 1
        start = after
    return filled
