"""Parallel text encoded as integers, with an index for each pair of source and target types that
co-occur in a sentence pair.

Tables indexed by type pair are flat arrays, so an EM pass consists of gather, arithmetic and
scatter operations. Type pairs are numbered one source type at a time, with an array that marks the
target types already encountered. Therefore no hash table is needed, and the pairs of a source type
are adjacent.

Numba caches machine code next to the source file. It recompiles a loop if the loop's own file
changes, but not if another file changes, so delete the `__pycache__` of this package after changing
this file.

The links for a seed do not depend on the number of threads or on the processor. The compiled loops
therefore must not change the order of a sum or fuse operations (the `fastmath` flags `reassoc` and
`contract`), because this depends on the processor's vector instructions, and a change to one
sampled link changes all later links. For the same reason, NumPy's `exp`, `log` and `power` are
avoided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from calque.offsets import offsets_of

ROOM = 1 << 22  # initial capacity of the array of type pairs
F = np.float32
# Increment and multipliers of SplitMix64, and the numbers of bits by which it shifts; uint64,
# because Numba converts a sum of uint64 and int64 to float64.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)

# Decorators of compiled loops: `loop` follows IEEE 754, `fast_loop` assumes that there are neither
# NaN nor infinities, and a `fast_part` is inlined into a `fast_loop`.
loop = njit(cache=True, nogil=True, error_model="numpy")
_SAME_ON_ALL_PROCESSORS = {"nnan", "ninf", "nsz"}
fast_loop = njit(cache=True, nogil=True, error_model="numpy", fastmath=_SAME_ON_ALL_PROCESSORS)
fast_part = njit(
    nogil=True, error_model="numpy", fastmath=_SAME_ON_ALL_PROCESSORS, forceinline=True
)


@loop
def mix(state):
    """Return 64 pseudo-random bits for a state, computed by the output function of SplitMix64
    (Steele, Lea & Flood 2014).

    The state of a generator is a uint64 to which `GOLDEN` is added before every draw.
    """
    state = (state ^ (state >> _30)) * _A
    state = (state ^ (state >> _27)) * _B
    return state ^ (state >> _31)


@loop
def unit(state):
    """Return a pseudo-random number in [0, 1) for a state."""
    return (mix(state) >> _11) * (1.0 / 9007199254740992.0)


@dataclass
class Side:
    """One side of a bitext, with word types, int32 `[n_words]`, sentence offsets, int64 `[n + 1]`,
    and the number of types.
    """

    words: np.ndarray
    offsets: np.ndarray
    n_types: int

    def __post_init__(self):
        self.words = np.ascontiguousarray(self.words, dtype=np.int32)
        if not self.words.flags.writeable:  # Numba would recompile all loops for a read-only array
            self.words = self.words.copy()


@dataclass
class Pairs:
    """Pairs of word types that co-occur, sorted by source type.

    Args:
        starts: index of the first pair of each source type, int64 `[n_source_types + 1]`.
        target: target type of each pair, int32 `[n_pairs]`.
    """

    starts: np.ndarray
    target: np.ndarray

    def __len__(self) -> int:
        return len(self.target)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to be saved."""
        return {"pairs.starts": self.starts, "pairs.target": self.target}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Pairs:
        """Rebuild the pairs from the result of `arrays`."""
        return cls(arrays["pairs.starts"], arrays["pairs.target"])

    @property
    def source(self) -> np.ndarray:
        """Source type of each pair, int64 `[n_pairs]`."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def find(self, other: Pairs) -> np.ndarray:
        """Return the index of each pair in `other`, or −1 if `other` does not contain the pair,
        int64 `[n_pairs]`.
        """
        largest = max(int(pairs.target.max(initial=-1)) for pairs in (self, other))
        return match(self.starts, self.target, other.starts, other.target, largest + 1)


class Text(NamedTuple):
    """A bitext in one alignment direction, for compiled loops.

    Attributes:
        origin: index of the first cell of each sentence pair, int64 `[n_sentences]`, or −1 if the
            sentence pair has no cells.
        cells: index of the type pair in each cell, uint32 `[n_cells]`; each source word has one row
            of cells.
        across: whether the source is the given side, so that each row of cells belongs to one word
            of the given side.
        given, given_offsets, observed, observed_offsets: words and offsets of the given side, to
            which links point, and of the observed side, whose words the model generates.
    """

    origin: np.ndarray
    cells: np.ndarray
    across: bool
    given: np.ndarray
    given_offsets: np.ndarray
    observed: np.ndarray
    observed_offsets: np.ndarray


class Bitext:
    """Sentence pairs as matrices of cells, in which cell (i, j) contains the index of the type pair
    of words i and j.

    Args:
        max_words: maximum number of words per side. Longer sentence pairs get neither cells nor
            links, because the number of cells grows with the square of the length.

    Attributes:
        used, too_long: indices of the sentence pairs with cells, sorted by length, int64, and
            number of overlong sentence pairs.
        pairs: all pairs of co-occurring types.
    """

    def __init__(self, source: Side, target: Side, *, max_words: int = 500):
        self.source, self.target = source, target
        rows, columns = np.diff(source.offsets), np.diff(target.offsets)
        fits = (rows <= max_words) & (columns <= max_words)
        self.too_long = int((~fits).sum())
        used = np.flatnonzero(fits & (rows > 0) & (columns > 0))
        # Sentence pairs with equal lengths are adjacent, which makes branches predictable for the
        # processor.
        self.used = used[np.lexsort((columns[used], rows[used]))]
        self.longest = int(max(rows[used].max(), columns[used].max())) if len(used) else 0
        ends = offsets_of(rows[self.used] * columns[self.used])
        self.n_cells = int(ends[-1])
        self.origin = np.full(len(rows), -1, dtype=np.int64)
        self.origin[self.used] = ends[:-1]
        starts, types, self.cells = number_pairs(
            source.words,
            source.offsets,
            source.n_types,
            target.words,
            target.offsets,
            target.n_types,
            self.origin,
            self.n_cells,
        )
        self.pairs = Pairs(starts, types)

    def __len__(self) -> int:
        return len(self.origin)

    def sides(self, across: bool) -> tuple[Side, Side]:
        """Return the given and the observed side: source and target if `across` is true, otherwise
        target and source.
        """
        return (self.source, self.target) if across else (self.target, self.source)

    def text(self, across: bool) -> Text:
        """Return the bitext in one alignment direction, for compiled loops."""
        given, observed = self.sides(across)
        return Text(
            self.origin,
            self.cells,
            across,
            given.words,
            given.offsets,
            observed.words,
            observed.offsets,
        )


@loop
def number_pairs(source, source_offsets, n_source, words, offsets, n_target, origin, n_cells):
    """Number the type pairs, and return `starts` and `target` (see `Pairs`) and `cells` (see
    `Text`).
    """
    first = np.zeros(n_source + 1, np.int64)
    for word in source:
        first[word + 1] += 1
    for s in range(n_source):
        first[s + 1] += first[s]
    # Sort the source words by type: `order` and `sentence` contain the position of each word in the
    # text and its sentence, and `first` the first word of each type.
    place = first.copy()
    order, sentence = np.empty(len(source), np.int64), np.empty(len(source), np.int32)
    for b in range(len(origin)):
        for k in range(source_offsets[b], source_offsets[b + 1]):
            order[place[source[k]]], sentence[place[source[k]]] = k, b
            place[source[k]] += 1
    starts, cells = np.zeros(n_source + 1, np.int64), np.empty(n_cells, np.uint32)
    # `stamp` contains the last pair of each target type. The pair belongs to the current source
    # type if its index is at least `row`, so `stamp` need not be cleared between source types.
    target, stamp, n = np.empty(min(n_cells, ROOM), np.int32), np.full(n_target, -1, np.int64), 0
    for s in range(n_source):
        row = n
        for p in range(first[s], first[s + 1]):
            b = sentence[p]
            if origin[b] < 0:
                continue
            low, length = offsets[b], offsets[b + 1] - offsets[b]
            if n + length > len(target):  # each word of the sentence may form a new pair
                grown = np.empty(max(2 * len(target), n + length), np.int32)
                grown[:n] = target[:n]
                target = grown
            cell = origin[b] + (order[p] - source_offsets[b]) * length
            # Branch-free, because a branch on new pairs would be unpredictable. target[n] is
            # overwritten until n is increased.
            for j in range(length):
                t = words[low + j]
                seen = stamp[t]
                pair = seen if seen >= row else n
                stamp[t] = pair
                target[n] = t
                n += seen < row
                cells[cell + j] = pair
        starts[s + 1] = n
    return starts, target[:n].copy(), cells


@loop
def match(starts, target, other_starts, other_target, n_target):
    """Compute the result of `Pairs.find`; the largest target type is below `n_target`."""
    # `slot` contains the pair of the current source type with each target type in `other`, or −1.
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
