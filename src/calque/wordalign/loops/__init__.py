"""What is compiled: loops over numbers, and nothing else. `Compiled` runs them without importing this package, so that
Numba is loaded only where they have to be compiled.

A loop that is called from outside takes numbers and contiguous arrays, also those that it works in: it makes none, and
cannot fail. It returns nothing, a number or a tuple of numbers.
"""

from __future__ import annotations

from numba import njit

loop = njit(nogil=True, error_model="numpy")
fast_loop = njit(nogil=True, error_model="numpy", fastmath=True)
