"""The loop over letters."""

from __future__ import annotations

import numpy as np

from calque.wordalign.loops import loop

_U = np.uint64
BITS = 64
LONGEST = 255  # letters; longer words count as if they had so many


@loop
def common(begin, end, left, left_offsets, right, right_offsets, starts, target, masks, out):
    """Bit-parallel longest common subsequence (Hyyrö 2004): a column of the table in one machine word. For the source types
    from `begin` to before `end`."""
    for s in range(begin, end):
        low, length = left_offsets[s], left_offsets[s + 1] - left_offsets[s]
        bits = min(length, BITS)
        for k in range(bits):
            masks[left[low + k]] |= _U(1) << _U(k)
        inside = ~_U(0) if bits == BITS else (_U(1) << _U(bits)) - _U(1)
        for p in range(starts[s], starts[s + 1]):
            first, last = right_offsets[target[p]], right_offsets[target[p] + 1]
            column = ~_U(0)
            for k in range(first, last):
                both = column & masks[right[k]]
                column = (column + both) | (column - both)
            rest = ~column & inside
            common = 0
            while rest != _U(0):
                rest &= rest - _U(1)
                common += 1
            out[p] = (common << 8) | min(max(length, last - first), LONGEST)
        for k in range(bits):
            masks[left[low + k]] = _U(0)
