"""Compiled loops: how Numba compiles them, and a random number generator for use inside them.

Numba keeps the machine code beside the source and makes it anew when the file of a loop has changed. It does not notice a
change in another file: after one here, remove the `__pycache__` of this package.

With `fastmath`, sums are regrouped, and each compiled copy of a function may have its own order. Which copy is called may
depend on whether this process compiled it or loaded it. So what a fast loop calls is a `fast_part`, which is compiled into it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

F = np.float32
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)

loop = njit(cache=True, nogil=True, error_model="numpy")
fast_loop = njit(cache=True, nogil=True, error_model="numpy", fastmath=True)
fast_part = njit(nogil=True, error_model="numpy", fastmath=True, forceinline=True)


@loop
def mix(state):
    """Return 64 random bits for a counter: the output function of SplitMix64 (Steele, Lea & Flood 2014).

    A generator is a uint64 `state`; advance it with `state += GOLDEN` before every draw.
    """
    state = (state ^ (state >> _30)) * _A
    state = (state ^ (state >> _27)) * _B
    return state ^ (state >> _31)


@loop
def unit(state):
    """Return a number from [0, 1) for a state."""
    return (mix(state) >> _11) * (1.0 / 9007199254740992.0)
