"""Random numbers inside compiled loops: a generator that is one integer, so that every loop can own one."""

from __future__ import annotations

import numpy as np

from calque.wordalign.loops import loop

_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@loop
def mix(state):
    """The output function of SplitMix64 (Steele, Lea & Flood 2014): a counter in, 64 random bits out.

    A generator is a uint64 `state`; advance it with `state += GOLDEN` before every draw.
    """
    state = (state ^ (state >> _30)) * _A
    state = (state ^ (state >> _27)) * _B
    return state ^ (state >> _31)


@loop
def unit(state):
    """A number from [0, 1) for a state."""
    return (mix(state) >> _11) * (1.0 / 9007199254740992.0)


@loop
def sentence_keys(source, source_offsets, n_source, target, target_offsets, n_target, keys):
    """A number for every sentence pair into `keys`, uint64, from its words alone; unknown ones, from `n_source` and
    `n_target` on, by which of the sentence's unknown words they are."""
    for b in range(len(keys)):
        key = mix(np.uint64(source_offsets[b + 1] - source_offsets[b]))
        key = _with_words(key, source, source_offsets[b], source_offsets[b + 1], n_source)
        keys[b] = _with_words(key, target, target_offsets[b], target_offsets[b + 1], n_target)


@loop
def _with_words(key, words, low, high, known):
    first = -1
    for k in range(low, high):
        word = np.int64(words[k])
        if word >= known:
            if first < 0:
                first = word
            word += known - first
        key = mix(key ^ np.uint64(word))
    return key
