"""Vectors of all words of texts that are longer than an encoder reads at once."""

from __future__ import annotations

import warnings

import numpy as np

from calque.encoders.base import Encoder
from calque.encoders.extraction import UncoveredWordsWarning
from calque.text import Sentences
from calque.vectors import Embeddings


def encode_long(encoder: Encoder, texts: Sentences, *, progress: bool = False) -> Embeddings:
    """Return one vector for each word, whatever the encoder's limit.

    A text whose end has no vectors is read again from the middle of what was covered, until its end is reached. A word that
    is in several of these windows has its vector from the one where it has most words on its poorer side (as BERT's
    `run_squad.py` chooses, Devlin et al. 2019). How far a window gets is what the encoder covers, so any encoder will do.

    Args:
        texts: in any order; the result keeps it.

    Warns:
        UncoveredWordsWarning: words have no vector even alone.
    """
    first = _encoded(encoder, texts, progress)
    if first.covered is None:
        return first
    data, offsets, covered = np.array(first.data), first.offsets, np.zeros_like(first.covered)
    context = np.full(len(covered), -1)  # words on the poorer side of each in the window that its vector is from
    # Where the next window of each text begins, and how far the others got.
    windows: dict[int, tuple[int, int]] = dict.fromkeys(range(len(first)), (0, 0))
    again = first
    while windows:
        for number, (text, (start, reached)) in enumerate(list(windows.items())):
            inside = slice(*again.offsets[number : number + 2])
            has = np.ones(inside.stop - inside.start, bool) if again.covered is None else again.covered[inside]
            size = int(np.flatnonzero(has)[-1]) + 1 if has.any() else 0
            rows = offsets[text] + start + np.arange(size)
            poorer = np.minimum(np.arange(size), np.arange(size)[::-1])
            better = rows[has[:size] & (poorer > context[rows])]
            data[better] = again.data[inside][better - offsets[text] - start]
            covered[better], context[better] = True, poorer[better - offsets[text] - start]
            if start + size > reached:
                windows[text] = max(start + 1, start + size // 2), start + size
            else:  # the next word takes all the room: it begins a window, and if it has been at the beginning, it has no vector
                at = reached + (start == reached)
                windows[text] = at, at
            if windows[text][1] >= offsets[text + 1] - offsets[text]:
                del windows[text]
        rest = [texts[text].words[start:] for text, (start, _) in windows.items()]
        again = _encoded(encoder, Sentences.of(rest, texts.lang), False) if rest else again
    if missing := int((~covered).sum()):
        message = f"{missing:,} of {len(covered):,} words have no vector, not even alone; their rows are zero"
        warnings.warn(UncoveredWordsWarning(message), stacklevel=2)
    return Embeddings(data, offsets, covered)


def _encoded(encoder: Encoder, texts: Sentences, progress: bool) -> Embeddings:
    """Encode without the warning about truncated words, which are encoded again in the next window."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncoveredWordsWarning)
        return encoder.encode(texts, progress=progress)
