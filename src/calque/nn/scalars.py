"""What compiled loops over float32 and bfloat16 share: reading and writing a number, exp, and the coin of dropout.

bfloat16 is the upper half of a float32; NumPy does not know it, so it comes as uint16 (`tensor.view(torch.uint16)`).
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import overload

#: Sums may be reordered, so that they run eight or sixteen at a time. NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}
_HALF, _ONE = np.float32(0.5), np.float32(1.0)


def number(value):  # pragma: no cover  (replaced where it is compiled)
    """A float32 from what an array holds."""
    return value


@overload(number, inline="always")
def _number(value):
    if value == types.uint16:
        return lambda value: np.int32(np.int32(value) << np.int32(16)).view(np.float32)
    return lambda value: value


def put(array, i, value):  # pragma: no cover
    """`array[i] = value`, rounded to the nearest number that the array can hold, to even between two."""
    array[i] = value


@overload(put, inline="always")
def _put(array, i, value):
    if array.dtype == types.uint16:

        def rounded(array, i, value):
            bits = np.float32(value).view(np.int32)
            odd = (bits >> np.int32(16)) & np.int32(1)
            array[i] = np.uint16(np.int32(bits + np.int32(0x7FFF) + odd) >> np.int32(16))

        return rounded

    def exact(array, i, value):
        array[i] = value

    return exact


@njit(fastmath=FAST, nogil=True, error_model="numpy")
def fast_exp(x):
    """exp(x) for a float32 of at most 88, within two units in the last place (Cephes, `expf`); below −87 it is 1e-38."""
    x = max(x, np.float32(-87.0))
    whole = np.floor(x * np.float32(1.4426950408889634) + _HALF)
    r = x - whole * np.float32(0.693359375) + whole * np.float32(2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * r + np.float32(1.3981999507e-3)
    y = y * r + np.float32(8.3334519073e-3)
    y = y * r + np.float32(4.1665795894e-2)
    y = y * r + np.float32(1.6666665459e-1)
    y = y * r + np.float32(5.0000001201e-1)
    y = y * r * r + r + _ONE
    return y * np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(nogil=True, error_model="numpy")
def coin(index, key):
    """32 bits that look random, from a place and the key of a mask: the same for the way there and the way back, whatever
    thread asks (the finalizer of Wellons 2018, "Prospecting for hash functions")."""
    x = np.uint32(np.uint32(index) * np.uint32(0x9E3779B9)) + np.uint32(key)
    x = np.uint32(x)
    x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ np.uint32(x >> np.uint32(16)))
