"""Two directions into one set of links, as Moses and atools define it."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.wordalign.bitext import loop

Symmetrization = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and", "one-to-one"]
METHODS: tuple[str, ...] = get_args(Symmetrization)


def check_method(method: str) -> None:
    """Check that there is such a symmetrisation, before anything long begins.

    Raises:
        SettingError: there is not.
    """
    if method not in METHODS:
        raise SettingError(f"symmetrize={method!r}, expected one of {', '.join(METHODS)}")


def symmetrize(forward: WordPairs, backward: WordPairs, method: str = "intersection") -> WordPairs:
    """Join the links of both directions.

    `intersection` and `union` are what they say. `grow-diag` starts from the intersection and adds links of the union
    that touch one already there, also diagonally, if one of the two words has no link yet; `-final` then adds links of
    either direction of which one word, `-final-and` both words, have no link yet (Koehn et al. 2005, "Edinburgh system
    description"). `one-to-one` is the intersection without any word that has two links (Cao 2020).

    Args:
        forward, backward: links of the same sentence pairs, both as (source, target).
        method: one of `METHODS`.

    Returns:
        links sorted by sentence, source and target; the posterior of one is the mean of both directions', where a
        direction that has not the link counts as 0, if both have posteriors.

    Raises:
        SettingError: no such method, or links of different texts.
    """
    check_method(method)
    if forward.n_sentences != backward.n_sentences:
        raise SettingError(f"links of {forward.n_sentences} and of {backward.n_sentences} sentence pairs")
    n, code = forward.n_sentences, -1 if method == "one-to-one" else METHODS.index(method)
    sentence, source, target, posterior = join(*_arrays(forward), *_arrays(backward), n, code)
    has_posterior = forward.posterior is not None and backward.posterior is not None
    return WordPairs(sentence, source, target, n_sentences=n, posterior=posterior if has_posterior else None)


def _arrays(pairs: WordPairs) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the offsets of the sentences, source, target, posterior (1 where there is none)."""
    posterior = np.ones(len(pairs), np.float32) if pairs.posterior is None else pairs.posterior
    source, target = np.ascontiguousarray(pairs.source), np.ascontiguousarray(pairs.target)
    return pairs.offsets(), source, target, np.ascontiguousarray(posterior)


@loop
def join(
    a_offsets, a_source, a_target, a_posterior, b_offsets, b_source, b_target, b_posterior, n_sentences, method
):  # fmt: skip
    """Return sentence, source, target and posterior of the links of both directions that a method keeps."""
    most = len(a_source) + len(b_source)
    sentence, source, target = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    posterior, n = np.empty(most, np.float32), 0
    for k in range(n_sentences):
        height = width = 0
        for i in range(a_offsets[k], a_offsets[k + 1]):
            height, width = max(height, a_source[i] + 1), max(width, a_target[i] + 1)
        for i in range(b_offsets[k], b_offsets[k + 1]):
            height, width = max(height, b_source[i] + 1), max(width, b_target[i] + 1)
        if height == 0:
            continue
        # Bit 1: forward has the link. Bit 2: backward has it. Bit 4: it is in the result.
        state, weight = np.zeros(height * width, np.uint8), np.zeros(height * width, np.float32)
        row, column = np.zeros(height, np.bool_), np.zeros(width, np.bool_)
        for i in range(a_offsets[k], a_offsets[k + 1]):
            cell = a_source[i] * width + a_target[i]
            state[cell] |= 1
            weight[cell] += np.float32(0.5) * a_posterior[i]
        for i in range(b_offsets[k], b_offsets[k + 1]):
            cell = b_source[i] * width + b_target[i]
            state[cell] |= 2
            weight[cell] += np.float32(0.5) * b_posterior[i]
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
            _alone(state, height, width)
        for s in range(height):
            for t in range(width):
                if state[s * width + t] & 4:
                    sentence[n], source[n], target[n], posterior[n] = k, s, t, weight[s * width + t]
                    n += 1
    return sentence[:n].copy(), source[:n].copy(), target[:n].copy(), posterior[:n].copy()


@loop
def _alone(state, height, width):
    """Take every link out of the result whose row or column has another one; bit 8 says that it was in."""
    for s in range(height):
        for t in range(width):
            if state[s * width + t] & 4:
                met = 0
                for i in range(width):
                    met += (state[s * width + i] & 12) > 0
                for i in range(height):
                    met += (state[i * width + t] & 12) > 0
                if met > 2:
                    state[s * width + t] ^= 12


@loop
def _grow(state, row, column):
    height, width = len(row), len(column)
    added = True
    while added:
        added = False
        for s in range(height):
            for t in range(width):
                if not state[s * width + t] & 4:
                    continue
                for ds, dt in ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)):
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
    height, width = len(row), len(column)
    for s in range(height):
        for t in range(width):
            if state[s * width + t] & 4 or not state[s * width + t] & direction:
                continue
            if (not row[s] and not column[t]) if both else (not row[s] or not column[t]):
                state[s * width + t] |= 4
                row[s] = column[t] = True
