"""Text of several languages as blocks of subwords, drawn so that small languages are seen more often than they occur."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calque.encoders.split import SplitSentences
from calque.errors import SettingError
from calque.offsets import ranges


@dataclass(frozen=True)
class Blocks:
    """Runs of sentences, each block begun and ended by the special subwords and split by the last of them.

    Attributes:
        ids: int32 `[n_subwords]`, of all blocks one after the other.
        offsets: int64 `[n_blocks + 1]`.
        words: bool `[n_subwords]`, which of them are whole words; None where that is not known.
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    @classmethod
    def of(cls, split: SplitSentences, length: int) -> Blocks:
        """Pack sentences in their order, as many as fit into `length` subwords; none is cut.

        Args:
            split: sentences between a special subword each, none longer than `length`.
            length: most subwords of a block.
        """
        sizes = np.diff(split.offsets)
        inner = np.flatnonzero(sizes > 2)  # without the empty ones
        if len(inner) and sizes[inner].max() > length:
            raise SettingError(f"a sentence of {sizes[inner].max()} subwords does not fit into blocks of {length}")
        # A sentence after the first of its block brings its own end, but needs no beginning.
        first, filled = np.zeros(len(inner), dtype=bool), length
        for k, size in enumerate(sizes[inner].tolist()):
            if filled + size - 1 > length:
                first[k], filled = True, size
            else:
                filled += size - 1
        skipped = (~first).astype(np.int64)
        taken = sizes[inner] - skipped
        places = ranges(split.offsets[inner] + skipped, taken)
        ids = split.ids[places].astype(np.int32)
        whole = np.zeros(len(split.ids), dtype=bool)
        begins = np.repeat(split.offsets[:-1], np.diff(split.word_offsets)) + split.word_starts
        whole[begins[split.word_lengths == 1]] = True
        ends = np.cumsum(taken)
        starts = (ends - taken)[first]
        return cls(ids, np.append(starts, ends[-1] if len(ends) else 0).astype(np.int64), whole[places])

    def padded(self, numbers: np.ndarray, pad: int) -> np.ndarray:
        """Some blocks, int32 `[n, longest]`."""
        lengths = self.lengths[numbers]
        inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
        ids = np.full(inside.shape, pad, dtype=np.int32)
        ids[inside] = self.ids[ranges(self.offsets[numbers], lengths)]
        return ids

    def whole_words(self, numbers: np.ndarray) -> np.ndarray:
        """Which subwords of some blocks are whole words, bool `[n, longest]`."""
        words = self.ids[:0] if self.words is None else self.words
        return Blocks(words, self.offsets).padded(numbers, 0).astype(bool)


class Mixture:
    """Which blocks make up which update.

    A language with n subwords is drawn with probability ∝ n^alpha (Conneau and Lample 2019, §3.1): 1 leaves the text as
    it is, 0 gives every language the same number of blocks (of sentences, where each is one: Multi-sense, §3.2). Each
    language's blocks come in a random order, and all of them before any comes again. An epoch has as many blocks as there are.

    Args:
        languages: blocks by language.
        batch: blocks in an update.
        alpha: exponent.
        seed: of the order.
    """

    def __init__(self, languages: Mapping[str, Blocks], *, batch: int, alpha: float = 0.5, seed: int = 0):
        empty = [name for name, blocks in languages.items() if not len(blocks)]
        if empty or not languages:
            raise SettingError(f"no text in {', '.join(empty) or 'any language'}")
        if batch < 1 or not 0 <= alpha <= 1:
            raise SettingError(f"batch must be at least 1 and alpha between 0 and 1, got {batch} and {alpha}")
        self.languages, self.batch, self.seed = dict(languages), batch, seed
        sizes = np.array([len(blocks.ids) for blocks in languages.values()], dtype=np.float64)
        chance = sizes**alpha / (sizes**alpha).sum()
        total = sum(map(len, languages.values()))
        # Other shares are of subwords; blocks of one language may be shorter than another's.
        mean = sizes / np.array([len(blocks) for blocks in languages.values()]) if alpha else 1.0
        drawn = chance / mean / (chance / mean).sum() * total
        self.drawn = dict(zip(languages, np.maximum(1, np.round(drawn)).astype(int).tolist(), strict=True))
        self.steps_per_epoch = max(1, sum(self.drawn.values()) // batch)

    def epoch(self, number: int) -> list[list[tuple[str, np.ndarray]]]:
        """The updates of an epoch, each as numbers of blocks by language; a pure function of `number`."""
        names, chosen = [], []
        for index, (name, count) in enumerate(self.drawn.items()):
            names.append(np.full(count, index))
            chosen.append(self._draw(index, len(self.languages[name]), number * count, count))
        language, block = np.concatenate(names), np.concatenate(chosen)
        order = np.random.default_rng([self.seed, 1, number]).permutation(len(block))
        labels = list(self.languages)
        updates = []
        for start in range(0, self.steps_per_epoch * self.batch, self.batch):
            rows = order[start : start + self.batch]
            updates.append([(labels[k], block[rows[language[rows] == k]]) for k in np.unique(language[rows])])
        return updates

    def _draw(self, index: int, n: int, start: int, count: int) -> np.ndarray:
        """Places `start` to `start + count` in an endless row of permutations of `n`."""
        parts = []
        for cycle in range(start // n, (start + count - 1) // n + 1):
            order = np.random.default_rng([self.seed, 2, index, cycle]).permutation(n)
            parts.append(order[max(0, start - cycle * n) : start + count - cycle * n])
        return np.concatenate(parts)

    @property
    def fingerprint(self) -> str:
        """Hash of the text."""
        digest = hashlib.blake2b(digest_size=16)
        for name, blocks in self.languages.items():
            digest.update(name.encode())
            digest.update(blocks.ids.tobytes())
            digest.update(blocks.offsets.tobytes())
        return digest.hexdigest()


def mask(
    ids: np.ndarray, special: Sequence[int], *, mask_id: int, vocabulary: int, share: float, rng: np.random.Generator,
    visible: float = 0.1,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Hide subwords that are then to be guessed (Devlin et al. 2019, §3.1).

    Of the chosen ones four fifths become the mask, a tenth any subword of the vocabulary, and a tenth stays.

    Args:
        ids: `[n, length]`.
        special: ids that are never chosen: padding and the ends.
        mask_id: of the mask.
        vocabulary: number of subwords.
        share: of the subwords to choose.
        visible: share of these that stay; of the others one in nine becomes any subword.

    Returns:
        the text to read, `[n, length]`, and flat positions of the chosen subwords, `[n_chosen]`.
    """
    possible = np.flatnonzero(~np.isin(ids, special))
    chosen = np.sort(rng.choice(possible, size=max(1, round(share * len(possible))), replace=False))
    read = ids.copy()
    fate = rng.random(len(chosen))
    ordinary = np.setdiff1d(np.arange(vocabulary), special)
    masked = (1 - visible) * 8 / 9
    read.flat[chosen[fate < masked]] = mask_id
    swapped = chosen[(fate >= masked) & (fate < 1 - visible)]
    read.flat[swapped] = rng.choice(ordinary, size=len(swapped))
    return read, chosen
