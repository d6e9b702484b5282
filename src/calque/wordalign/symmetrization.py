"""Two directions into one set of links, as Moses and atools define it."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.wordalign.compiled import Compiled

Symmetrization = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and", "one-to-one"]
join = Compiled("calque.wordalign.loops.joining:join")
METHODS: tuple[str, ...] = get_args(Symmetrization)


def check_method(method: str) -> None:
    """Before anything long begins: that there is such a symmetrisation.

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
    capacity = len(forward) + len(backward)
    sentence, source, target = (np.empty(capacity, np.int64) for _ in range(3))
    posterior = np.empty(capacity, np.float32)
    height, width = (
        1 + max(int(getattr(pairs, side).max(initial=-1)) for pairs in (forward, backward))
        for side in ("source", "target")
    )
    room = np.empty(height * width, np.uint8), np.empty(height * width, np.float32)
    sides = np.empty(height, np.bool_), np.empty(width, np.bool_)
    kept = join(*_arrays(forward), *_arrays(backward), n, code, sentence, source, target, posterior, *room, *sides)
    sentence, source, target, posterior = (array[:kept].copy() for array in (sentence, source, target, posterior))
    has_posterior = forward.posterior is not None and backward.posterior is not None
    return WordPairs(sentence, source, target, n_sentences=n, posterior=posterior if has_posterior else None)


def _arrays(pairs: WordPairs) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Offsets of the sentences, source, target, posterior (1 where there is none)."""
    posterior = np.ones(len(pairs), np.float32) if pairs.posterior is None else pairs.posterior
    source, target = np.ascontiguousarray(pairs.source), np.ascontiguousarray(pairs.target)
    return pairs.offsets(), source, target, np.ascontiguousarray(posterior)
