"""Parallel text as integers: every source type and target type that meet in a sentence pair get a number.

Tables over such pairs of types are flat arrays, and a pass of EM is gather, arithmetic, scatter. The numbers come from
walking through the occurrences of one source type after the other with an array that remembers which target types it
has met; so no hash table is needed, and the pairs of a source type lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from calque.offsets import offsets_of
from calque.wordalign.compiled import Compiled
from calque.wordalign.parallel import run

Block = tuple[np.ndarray, np.ndarray, np.ndarray]
by_type = Compiled("calque.wordalign.loops.cells:by_type")
shift_rows = Compiled("calque.wordalign.loops.cells:shift_rows")
number_rows = Compiled("calque.wordalign.loops.cells:number_rows")
fill_rows = Compiled("calque.wordalign.loops.cells:fill_rows")
match = Compiled("calque.wordalign.loops.cells:match")
PARALLEL = 1 << 21  # cells from which on several threads number them
PARTS = 8  # of the cells that may be in memory, which a block takes
ROOM = 1 << 22  # pairs of types there is room for at first


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
        """For saving."""
        return {"pairs.starts": self.starts, "pairs.target": self.target}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Pairs:
        """The pairs from what `arrays` gave."""
        return cls(arrays["pairs.starts"], arrays["pairs.target"])

    @property
    def source(self) -> np.ndarray:
        """int64 `[n_pairs]`, source type of each pair."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def find(self, other: Pairs) -> np.ndarray:
        """Number that each pair of `self` has in `other`, int64 `[n_pairs]`, −1 where it is not there."""
        numbers = np.full(len(self), -1, dtype=np.int64)
        largest = max(int(pairs.target.max(initial=-1)) for pairs in (self, other))
        match(self.starts, self.target, other.starts, other.target, np.full(largest + 1, -1, dtype=np.int64), numbers)
        return numbers


class Bitext:
    """Sentence pairs as cells: cell (i, j) of a sentence pair holds the number of the pair of types that meet there.

    Args:
        source, target: the two sides.
        max_words: sentence pairs with more words than this on a side have no cells and get no links, because cells
            grow with the square of the length. `too_long` counts them.
        max_cells: cells held in memory (4 bytes each). A larger text is cut into blocks of an eighth as many, which are
            computed anew in every pass.
        threads: for numbering the pairs and computing blocks; the numbers do not depend on it.
    """

    def __init__(self, source: Side, target: Side, *, max_words: int = 500, max_cells: int = 1 << 29, threads: int = 1):
        self.source, self.target = source, target
        rows, columns = np.diff(source.offsets), np.diff(target.offsets)
        fits = (rows <= max_words) & (columns <= max_words)
        self.too_long = int((~fits).sum())
        used = np.flatnonzero(fits & (rows > 0) & (columns > 0))
        # by length: sentence pairs of one shape share the normalisation of their jumps, and branch alike; so lie their cells
        self.used = used[np.lexsort((columns[used], rows[used]))]
        self._size = np.zeros(len(rows), dtype=np.int64)
        self._size[used] = rows[used] * columns[used]
        self.longest = int(max(rows[used].max(), columns[used].max())) if len(used) else 0
        self.max_cells, self.threads = max_cells, threads
        self.n_cells = int(self._size.sum())
        self.pairs, self._cells = self._number()

    def __len__(self) -> int:
        return len(self._size)

    def sides(self, across: bool) -> tuple[Side, Side]:
        """The given and the observed side of a direction: source and target if `across`, else the other way."""
        return (self.source, self.target) if across else (self.target, self.source)

    @property
    def in_memory(self) -> bool:
        """Whether all cells are held."""
        return self.n_cells <= self.max_cells

    def _origins(self, used: np.ndarray) -> np.ndarray:
        """Where the cells of each sentence pair begin, those of `used` one after the other; −1 for all others."""
        origin = np.full(len(self), -1, dtype=np.int64)
        origin[used] = offsets_of(self._size[used])[:-1]
        return origin

    def _sorted(self, first: int, last: int) -> tuple[np.ndarray, ...]:
        """The source words of sentences `first` to `last` by type: their positions among these words, where each type begins
        there, the sentence of each word, and how many words are before all of them."""
        offsets = self.source.offsets
        words = self.source.words[offsets[first] : offsets[last]]
        order = np.empty(len(words), np.int32 if len(words) < 1 << 31 else np.int64)
        begin = np.zeros(self.source.n_types + 1, np.int64)
        by_type(words, order, begin)
        sentence = np.repeat(np.arange(first, last, dtype=np.int32), np.diff(offsets[first : last + 1]))
        return order, begin, sentence, offsets[first]

    def _number(self) -> tuple[Pairs, np.ndarray]:
        """All pairs and cells. Ranges of source types are numbered side by side, each from 0, and then moved to their place: the
        numbers are those of one range after the other."""
        cells = np.empty(self.n_cells if self.in_memory else 0, dtype=np.uint32)
        origin, (order, first, sentence, _) = self._origins(self.used), self._sorted(0, len(self))
        ranges = self._ranges(first, self.n_cells)
        places = self.source.offsets, self.target.words, self.target.offsets, order, first, sentence, origin

        def number(s: int, last: int) -> tuple[np.ndarray, np.ndarray]:
            begun, starts = s, np.zeros(self.source.n_types + 1, dtype=np.int64)
            target = np.empty(min(self.n_cells, max(ROOM, self.target.n_types)), dtype=np.int32)
            stamp = np.full(self.target.n_types, -1, dtype=np.int64)
            while s < last:
                s = number_rows(s, last, *places, stamp, starts, target, cells)
                if s < last:
                    target = np.concatenate([target, np.empty_like(target)])
            return starts[begun + 1 : last + 1].copy(), target[: starts[last]].copy()

        numbered = run([partial(number, *each) for each in ranges], self.threads)
        bases = offsets_of([len(target) for _, target in numbered]).tolist()
        if self.in_memory and len(ranges) > 1:
            base = np.repeat(np.array(bases[:-1], np.uint32), [last - s for s, last in ranges])
            places = self.source.words, self.source.offsets, self.target.offsets, origin, base, cells
            run(
                [partial(shift_rows, part, *places) for part in np.array_split(self.used, 4 * self.threads)],
                self.threads,
            )
        starts = [np.zeros(1, np.int64), *(starts + base for (starts, _), base in zip(numbered, bases, strict=False))]
        return Pairs(np.concatenate(starts), np.concatenate([target for _, target in numbered])), cells

    def _ranges(self, first: np.ndarray, n_cells: int) -> list[tuple[int, int]]:
        """Ranges of source types for the threads, with as many words each."""
        parts = 1 if self.threads == 1 or n_cells < PARALLEL else 4 * self.threads
        cuts = np.searchsorted(first, np.linspace(0, first[-1], parts + 1)[1:-1]).tolist()
        return list(pairwise([0, *cuts, self.source.n_types]))

    def _cuts(self) -> list[tuple[int, int]]:
        """Where the blocks begin and end."""
        filled, cuts = offsets_of(self._size), [0]
        while cuts[-1] < len(self):
            most = filled[cuts[-1]] + self.max_cells // PARTS
            cuts.append(max(cuts[-1] + 1, int(np.searchsorted(filled, most, side="right")) - 1))
        return list(pairwise(cuts))

    def blocks(self) -> Iterator[Block]:
        """Cut the text into parts whose cells fit into memory.

        Yields:
            numbers of the sentence pairs of a block, int64, sorted by length; where in the cells each sentence pair
            of the text begins, int64, −1 for those outside the block; the cells, uint32 (Numba need not think of
            negative indices), a row per source word.
        """
        if self.in_memory:
            yield self.used, self._origins(self.used), self._cells
            return
        for begin, end in self._cuts():
            used = self.used[(self.used >= begin) & (self.used < end)]
            origin, cells = self._origins(used), np.empty(int(self._size[begin:end].sum()), dtype=np.uint32)
            order, first, sentence, words_before = self._sorted(begin, end)
            tasks = [
                partial(
                    fill_rows, *each, self.source.offsets, self.target.words, self.target.offsets, order, first, sentence,
                    words_before, origin, self.pairs.starts, self.pairs.target, np.empty(self.target.n_types, np.int32), cells,
                )
                for each in self._ranges(first, len(cells))
            ]  # fmt: skip
            run(tasks, self.threads)
            del order, first, sentence, tasks
            yield used, origin, cells
