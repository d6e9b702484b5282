"""Symmetrisation of the links of two alignment directions, as defined by Moses and atools."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.wordalign.bitext import loop

Symmetrization = Literal[
    "intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and", "one-to-one"
]
METHODS: tuple[str, ...] = get_args(Symmetrization)


def check_method(method: str) -> None:
    """Check the name of a symmetrisation method.

    Raises:
        SettingError: the name is unknown.
    """
    if method not in METHODS:
        raise SettingError(f"symmetrize must be one of {', '.join(METHODS)}, got {method!r}")


def symmetrize(forward: WordPairs, backward: WordPairs, method: str = "intersection") -> WordPairs:
    """Return the symmetrised links of two alignment directions.

    `grow-diag` starts from the intersection and adds links of the union that are horizontally,
    vertically or diagonally adjacent to a selected link, if at least one of the two words has no
    link yet. `-final` then adds links of either direction if at least one of the two words has no
    link yet; `-final-and` adds them only if neither word has a link (Koehn et al. 2005, "Edinburgh
    system description"). `one-to-one` is the intersection without the links of words with several
    links (Cao 2020).

    Args:
        forward, backward: links of the two directions for the same sentence pairs, both as (source,
            target) pairs.
        method: one of `METHODS`.

    Returns:
        links sorted by sentence, source and target. If both directions have posteriors, the
        posterior of a link is the mean of its posteriors in the two directions; a direction without
        the link counts as 0.

    Raises:
        SettingError: the method is unknown, or the numbers of sentence pairs differ.
    """
    check_method(method)
    if forward.n_sentences != backward.n_sentences:
        raise SettingError(
            f"links must belong to the same text, got {forward.n_sentences} and "
            f"{backward.n_sentences} sentence pairs"
        )
    n = forward.n_sentences
    code = -1 if method == "one-to-one" else METHODS.index(method)
    sentence, source, target, posterior = join(_arrays(forward), _arrays(backward), n, code)
    if forward.posterior is None or backward.posterior is None:
        posterior = None
    return WordPairs(sentence, source, target, n_sentences=n, posterior=posterior)


def _arrays(pairs: WordPairs) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the sentence offsets, source positions, target positions and posteriors (default: 1)
    of links.
    """
    posterior = np.ones(len(pairs), np.float32) if pairs.posterior is None else pairs.posterior
    source, target = np.ascontiguousarray(pairs.source), np.ascontiguousarray(pairs.target)
    return pairs.offsets(), source, target, np.ascontiguousarray(posterior)


@loop
def join(forward, backward, n_sentences, method):
    """Return the sentence indices, source positions, target positions and posteriors of the
    selected links.

    Args:
        forward, backward: links of the two directions, see `_arrays`.
        method: index of the method in `METHODS`, or −1 for `one-to-one`.
    """
    size = len(forward[1]) + len(backward[1])  # size of the union if no link is in both directions
    sentence, source = np.empty(size, np.int64), np.empty(size, np.int64)
    target, posterior = np.empty(size, np.int64), np.empty(size, np.float32)
    n = 0
    for k in range(n_sentences):
        # Size of the smallest matrix that contains all links of the sentence pair.
        height = width = 0
        for offsets, rows, columns, _ in (forward, backward):
            for i in range(offsets[k], offsets[k + 1]):
                height, width = max(height, rows[i] + 1), max(width, columns[i] + 1)
        if height == 0:
            continue
        # Value 1 marks a link of `forward`, 2 a link of `backward`, and 4 a selected link.
        state, weight = np.zeros(height * width, np.uint8), np.zeros(height * width, np.float32)
        # `row` and `column` mark the words that have a selected link.
        row, column = np.zeros(height, np.bool_), np.zeros(width, np.bool_)
        bit = 1
        for offsets, rows, columns, link_posterior in (forward, backward):
            for i in range(offsets[k], offsets[k + 1]):
                cell = rows[i] * width + columns[i]
                state[cell] |= bit
                weight[cell] += np.float32(0.5) * link_posterior[i]
            bit = 2
        # Every method starts from the intersection, and `union` (method 1) from the union.
        for s in range(height):
            for t in range(width):
                cell = s * width + t
                if state[cell] == 3 or (method == 1 and state[cell] > 0):
                    state[cell] |= 4
                    row[s] = column[t] = True
        if method >= 2:
            _grow(state, row, column)
        if method >= 3:
            for direction in (1, 2):
                _final(state, row, column, direction, method == 4)
        if method < 0:
            _one_to_one(state, height, width)
        for s in range(height):
            for t in range(width):
                if state[s * width + t] & 4:
                    sentence[n], source[n], target[n], posterior[n] = k, s, t, weight[s * width + t]
                    n += 1
    return sentence[:n].copy(), source[:n].copy(), target[:n].copy(), posterior[:n].copy()


@loop
def _one_to_one(state, height, width):
    """Remove every selected link whose row or column has another selected link; the value 8 marks
    removed links.
    """
    for s in range(height):
        for t in range(width):
            if state[s * width + t] & 4:
                # Links of the row and of the column, removed or not; the link itself counts twice.
                count = 0
                for i in range(width):
                    count += (state[s * width + i] & 12) > 0
                for i in range(height):
                    count += (state[i * width + t] & 12) > 0
                if count > 2:
                    state[s * width + t] ^= 12


@loop
def _grow(state, row, column):
    """Select links of the union that are adjacent to a selected link, until there are no more.

    A link is selected only if its source word or its target word has no link yet. The order of the
    neighbours is that of Moses, and affects the result.
    """
    height, width = len(row), len(column)
    added = True
    while added:
        added = False
        for s in range(height):
            for t in range(width):
                if not state[s * width + t] & 4:
                    continue
                for ds, dt in (
                    (-1, 0),
                    (0, -1),
                    (1, 0),
                    (0, 1),
                    (-1, -1),
                    (-1, 1),
                    (1, -1),
                    (1, 1),
                ):
                    i, j = s + ds, t + dt
                    if i < 0 or j < 0 or i >= height or j >= width:
                        continue
                    if state[i * width + j] & 4 or not state[i * width + j] & 3:
                        continue
                    if not row[i] or not column[j]:
                        state[i * width + j] |= 4
                        row[i] = column[j] = added = True


@loop
def _final(state, row, column, direction, both):
    """Select links of one direction whose words have no selected link yet: both words if `both` is
    true, otherwise at least one of them.
    """
    height, width = len(row), len(column)
    for s in range(height):
        for t in range(width):
            if state[s * width + t] & 4 or not state[s * width + t] & direction:
                continue
            if both:
                is_free = not row[s] and not column[t]
            else:
                is_free = not row[s] or not column[t]
            if is_free:
                state[s * width + t] |= 4
                row[s] = column[t] = True
