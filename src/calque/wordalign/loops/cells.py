"""Loops over the words of a text that number its pairs of types."""

from __future__ import annotations

from calque.wordalign.loops import loop


@loop
def by_type(words, order, first):
    """Positions of the words sorted by type into `order`, and where each type begins among them into `first`, all 0 before."""
    for word in words:
        first[word + 1] += 1
    for s in range(len(first) - 1):
        first[s + 1] += first[s]
    for k in range(len(words) - 1, -1, -1):  # backwards, each type is filled from its end to its beginning
        word = words[k]
        first[word + 1] -= 1
        order[first[word + 1]] = k
    for s in range(len(first) - 1):
        first[s] = first[s + 1]
    first[len(first) - 1] = len(words)


@loop
def number_rows(
    s, last, source_offsets, words, offsets, order, first, sentence, origin, stamp, starts, target, cells
):  # fmt: skip
    """Number the pairs of the source types from `s` to before `last`; returns the type whose row did not fit into `target`."""
    n, held = starts[s], len(cells) > 0
    while s < last:
        row = n
        for k in range(first[s], first[s + 1]):
            b = sentence[order[k]]
            if origin[b] < 0:
                continue
            low, length = offsets[b], offsets[b + 1] - offsets[b]
            if n + length > len(target):
                for p in range(row, n):  # this row is done again in a larger array: forget what it met
                    stamp[target[p]] = -1
                return s
            cell = origin[b] + (order[k] - source_offsets[b]) * length
            for j in range(length):  # without a branch on whether the pair is new, which would be mispredicted
                t = words[low + j]
                met = stamp[t]
                p = met if met >= row else n
                stamp[t] = p
                target[n] = t
                n += met < row
                if held:
                    cells[cell + j] = p
        s += 1
        starts[s] = n
    return s


@loop
def fill_rows(
    begin, end, source_offsets, words, offsets, order, first, sentence, before, origin, starts, target, slot, cells
):  # fmt: skip
    """Write the numbers of the known pairs of the source types from `begin` to before `end` into the cells of the sentence pairs
    that have an origin; `order` counts words from `before` on."""
    for s in range(begin, end):
        loaded = False
        for k in range(first[s], first[s + 1]):
            b = sentence[order[k]]
            if origin[b] < 0:
                continue
            if not loaded:
                for p in range(starts[s], starts[s + 1]):
                    slot[target[p]] = p
                loaded = True
            low, length = offsets[b], offsets[b + 1] - offsets[b]
            cell = origin[b] + (before + order[k] - source_offsets[b]) * length
            for j in range(length):
                cells[cell + j] = slot[words[low + j]]


@loop
def match(starts, target, other_starts, other_target, slot, numbers):
    for s in range(min(len(starts), len(other_starts)) - 1):
        if starts[s] == starts[s + 1]:
            continue
        for p in range(other_starts[s], other_starts[s + 1]):
            slot[other_target[p]] = p
        for p in range(starts[s], starts[s + 1]):
            numbers[p] = slot[target[p]]
        for p in range(other_starts[s], other_starts[s + 1]):
            slot[other_target[p]] = -1


@loop
def shift_rows(sentences, source, source_offsets, offsets, origin, base, cells):
    """Add its source type's `base`, uint32 `[n_source_types]`, to every cell of some sentence pairs."""
    for b in sentences:
        cell, length = origin[b], offsets[b + 1] - offsets[b]
        for k in range(source_offsets[b], source_offsets[b + 1]):
            more = base[source[k]]
            for j in range(length):
                cells[cell + j] += more
            cell += length
