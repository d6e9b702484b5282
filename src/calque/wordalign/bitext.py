"""Parallel text as integers: every source type and target type that meet in a sentence pair get a number.

Tables over such pairs of types are flat arrays, and a pass of EM is gather, arithmetic, scatter. The numbers come from
walking through the occurrences of one source type after the other with an array that remembers which target types it
has met; so no hash table is needed, and the pairs of a source type lie side by side.

Numba keeps the machine code beside the source and makes it anew when the file of a loop has changed. It does not notice a
change in another file: after one here, remove the `__pycache__` of this package.

With `fastmath`, sums are regrouped, and each compiled copy of a function may have its own order. Which copy is called may
depend on whether this process compiled it or loaded it. So what a fast loop calls is a `fast_part`, which is compiled into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from calque.offsets import offsets_of

ROOM = 1 << 22  # pairs of types there is room for at first
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


@dataclass
class Side:
    """One side of a bitext: `words` int32 `[n_words]` (types), `offsets` int64 `[n_sentences + 1]`, `n_types`."""

    words: np.ndarray
    offsets: np.ndarray
    n_types: int

    def __post_init__(self):
        self.words = np.ascontiguousarray(self.words, dtype=np.int32)
        if not self.words.flags.writeable:  # a read-only array is another type to Numba, and compiles everything anew
            self.words = self.words.copy()


@dataclass
class Pairs:
    """The pairs of types that meet, in rows by source type.

    Args:
        starts: int64 `[n_source_types + 1]`: the pairs of source type `s` are `starts[s]` to `starts[s + 1]`.
        target: int32 `[n_pairs]`, target type of each pair.
    """

    starts: np.ndarray
    target: np.ndarray

    def __len__(self) -> int:
        return len(self.target)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save."""
        return {"pairs.starts": self.starts, "pairs.target": self.target}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Pairs:
        """Build the pairs from what `arrays` gave."""
        return cls(arrays["pairs.starts"], arrays["pairs.target"])

    @property
    def source(self) -> np.ndarray:
        """int64 `[n_pairs]`, source type of each pair."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def find(self, other: Pairs) -> np.ndarray:
        """Return the number that each pair of `self` has in `other`, int64 `[n_pairs]`, −1 where it is not there."""
        largest = max(int(pairs.target.max(initial=-1)) for pairs in (self, other))
        return match(self.starts, self.target, other.starts, other.target, largest + 1)


class Text(NamedTuple):
    """A bitext in one direction, as compiled loops read it.

    Attributes:
        origin: int64 `[n_sentences]`, where the cells of each sentence pair begin; −1 for those without.
        cells: uint32 `[n_cells]`, the number of the pair of types, a row for each source word of a sentence pair.
        across: True where the given side is the source, so that a row of cells belongs to a given word.
        given, given_offsets, observed, observed_offsets: words and offsets of the side that links point to, and of the side
            whose words are explained.
    """

    origin: np.ndarray
    cells: np.ndarray
    across: bool
    given: np.ndarray
    given_offsets: np.ndarray
    observed: np.ndarray
    observed_offsets: np.ndarray


class Bitext:
    """Sentence pairs as cells: cell (i, j) of a sentence pair contains the number of the pair of types that meet there.

    Args:
        max_words: sentence pairs with more words than this on a side have no cells and get no links, because cells
            grow with the square of the length. `too_long` counts them.

    Attributes:
        used: int64, numbers of the sentence pairs with cells, sorted by length.
        pairs: all pairs of types.
    """

    def __init__(self, source: Side, target: Side, *, max_words: int = 500):
        self.source, self.target = source, target
        rows, columns = np.diff(source.offsets), np.diff(target.offsets)
        fits = (rows <= max_words) & (columns <= max_words)
        self.too_long = int((~fits).sum())
        used = np.flatnonzero(fits & (rows > 0) & (columns > 0))
        # Sentence pairs of one shape share the normalisation of their jumps, and branch alike; their cells lie side by side.
        self.used = used[np.lexsort((columns[used], rows[used]))]
        self.longest = int(max(rows[used].max(), columns[used].max())) if len(used) else 0
        ends = offsets_of(rows[self.used] * columns[self.used])
        self.n_cells = int(ends[-1])
        self.origin = np.full(len(rows), -1, dtype=np.int64)
        self.origin[self.used] = ends[:-1]
        starts, met, self.cells = number_pairs(
            source.words, source.offsets, source.n_types, target.words, target.offsets, target.n_types, self.origin, self.n_cells
        )  # fmt: skip
        self.pairs = Pairs(starts, met)

    def __len__(self) -> int:
        return len(self.origin)

    def sides(self, across: bool) -> tuple[Side, Side]:
        """Return the given and the observed side: source and target if `across`, else the other way."""
        return (self.source, self.target) if across else (self.target, self.source)

    def text(self, across: bool) -> Text:
        """Return what loops read in one direction."""
        given, observed = self.sides(across)
        return Text(
            self.origin, self.cells, across, given.words, given.offsets, observed.words, observed.offsets
        )  # fmt: skip


@loop
def number_pairs(source, source_offsets, n_source, words, offsets, n_target, origin, n_cells):
    """Number the pairs of types that meet, one source type after the other.

    Returns:
        starts, target: see `Pairs`; cells: see `Text`.
    """
    first = np.zeros(n_source + 1, np.int64)
    for word in source:
        first[word + 1] += 1
    for s in range(n_source):
        first[s + 1] += first[s]
    place, order, sentence = first.copy(), np.empty(len(source), np.int64), np.empty(len(source), np.int32)
    for b in range(len(origin)):
        for k in range(source_offsets[b], source_offsets[b + 1]):
            order[place[source[k]]], sentence[place[source[k]]] = k, b
            place[source[k]] += 1
    starts, cells = np.zeros(n_source + 1, np.int64), np.empty(n_cells, np.uint32)
    target, stamp, n = np.empty(min(n_cells, ROOM), np.int32), np.full(n_target, -1, np.int64), 0
    for s in range(n_source):
        row = n
        for p in range(first[s], first[s + 1]):
            b = sentence[p]
            if origin[b] < 0:
                continue
            low, length = offsets[b], offsets[b + 1] - offsets[b]
            if n + length > len(target):
                grown = np.empty(max(2 * len(target), n + length), np.int32)
                grown[:n] = target[:n]
                target = grown
            cell = origin[b] + (order[p] - source_offsets[b]) * length
            for j in range(length):  # without a branch on whether the pair is new, which would be mispredicted
                t = words[low + j]
                met = stamp[t]
                pair = met if met >= row else n
                stamp[t] = pair
                target[n] = t
                n += met < row
                cells[cell + j] = pair
        starts[s + 1] = n
    return starts, target[:n].copy(), cells


@loop
def match(starts, target, other_starts, other_target, n_target):
    """Return the number in the other pairs of each pair, −1 where it is not there; both in rows by source type."""
    slot, numbers = np.full(n_target, -1, np.int64), np.full(len(target), -1, np.int64)
    for s in range(min(len(starts), len(other_starts)) - 1):
        if starts[s] == starts[s + 1]:
            continue
        for p in range(other_starts[s], other_starts[s + 1]):
            slot[other_target[p]] = p
        for p in range(starts[s], starts[s + 1]):
            numbers[p] = slot[target[p]]
        for p in range(other_starts[s], other_starts[s + 1]):
            slot[other_target[p]] = -1
    return numbers
