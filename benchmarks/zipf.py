"""Generate parallel text of any length with known links: `python -m benchmarks.zipf --pairs 10000000 --out FILE`.

Source words follow Zipf's law, and each word is translated by its dictionary entry. One word in ten has a second entry, which
is used for a quarter of its occurrences. As in real translations, neighbouring words are swapped, and words are dropped and
inserted. As in large real texts, the vocabulary grows with the text, and most word pairs occur only once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from calque.offsets import offsets_of

BLOCK = 1 << 16  # number of sentence pairs per block
EXPONENT = 1.05  # exponent of Zipf's law
DROPPED = ADDED = (
    0.08  # fraction of source words that are dropped; fraction of target words that are inserted
)
MOVED = 0.8  # standard deviation of the distance by which words move from the source order
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


class ZipfText:
    """Generator of artificial sentence pairs.

    Args:
        types: number of source word types.
        length: mean number of words of a source sentence, at least 2.
        seed: random seed.
    """

    def __init__(self, *, types: int = 400_000, length: float = 12.0, seed: int = 0):
        self.types, self.length, self.seed = types, length, seed
        chance = 1 / np.arange(1, types + 1) ** EXPONENT
        self._ends = np.cumsum(chance / chance.sum())
        rng = np.random.default_rng([seed, 0])
        self.translations = rng.permutation(
            types
        )  # index of each source word's translation; the frequency ranks of both words differ
        self._second = np.where(
            rng.random(types) < 0.1, rng.integers(0, types, types), self.translations
        )

    def word(self, number: int, side: str) -> str:
        """Return the spelling of a word; source words and target words are never spelt alike."""
        spelled, rest = "", number + 70
        while rest:
            spelled += SYLLABLES[rest % 70]
            rest //= 70
        return f"{spelled}x" if side == "source" else f"w{spelled[::-1]}"

    def block(self, number: int, n: int) -> tuple[np.ndarray, ...]:
        """Return the `n` sentence pairs of block `number` as word indices; equal arguments and
        seeds give equal blocks.

        Returns:
            source words and their offsets; target words and their offsets; and the position of the
            source word that each target word translates, −1 for inserted words.
        """
        rng = np.random.default_rng([self.seed, 1, number])
        lengths = 2 + rng.poisson(self.length - 2, n)
        offsets = offsets_of(lengths)
        source = np.minimum(np.searchsorted(self._ends, rng.random(offsets[-1])), self.types - 1)
        target = np.where(
            rng.random(len(source)) < 0.25, self._second[source], self.translations[source]
        )
        sentence, position = (
            np.repeat(np.arange(n), lengths),
            np.arange(len(source)) - np.repeat(offsets[:-1], lengths),
        )
        place = position + rng.normal(0, MOVED, len(source))
        kept = (rng.random(len(source)) >= DROPPED) | (position == 0)
        new = np.flatnonzero(rng.random(len(source)) < ADDED)
        words = np.concatenate([target[kept], np.searchsorted(self._ends, rng.random(len(new)))])
        of = np.concatenate([sentence[kept], sentence[new]])
        order = np.lexsort((np.concatenate([place[kept], place[new]]), of))
        come_from = np.concatenate([position[kept], np.full(len(new), -1)])[order]
        counts = np.bincount(of, minlength=n)
        return (
            source,
            offsets,
            np.minimum(words[order], self.types - 1),
            offsets_of(counts),
            come_from,
        )

    def blocks(self, pairs: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield sentence pairs block by block."""
        for number, begin in enumerate(range(0, pairs, BLOCK)):
            yield self.block(number, min(BLOCK, pairs - begin))


def write(text: ZipfText, n: int, plain: Path, pairs: Path, links: Path) -> None:
    """Write `n` sentence pairs to three files: source sentences, lines `source ||| target`, and
    gold links.
    """
    spelled = {
        side: [text.word(k, side) for k in range(text.types)] for side in ("source", "target")
    }
    with plain.open("w") as sources, pairs.open("w") as both, links.open("w") as true:
        for source, source_offsets, target, target_offsets, come_from in text.blocks(n):
            left, right = (
                [
                    " ".join(spelled[side][k] for k in numbers[first:last])
                    for first, last in pairwise(offsets)
                ]
                for side, numbers, offsets in (
                    ("source", source.tolist(), source_offsets.tolist()),
                    ("target", target.tolist(), target_offsets.tolist()),
                )
            )
            sources.writelines(f"{line}\n" for line in left)
            both.writelines(f"{a} ||| {b}\n" for a, b in zip(left, right, strict=True))
            of = come_from.tolist()
            true.writelines(
                " ".join(f"{i}-{j}" for j, i in enumerate(of[first:last]) if i >= 0) + "\n"
                for first, last in pairwise(target_offsets.tolist())
            )


def score(found: Path, true: Path) -> tuple[float, float]:
    """Return the precision and recall of the links in a Pharaoh file."""
    counts = np.zeros(3)
    with found.open() as ours, true.open() as theirs:
        for one, other in zip(ours, theirs, strict=True):
            mine, right = set(one.split()), set(other.split())
            counts += len(mine & right), len(mine), len(right)
    return counts[0] / max(1, counts[1]), counts[0] / max(1, counts[2])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--types", type=int, default=400_000)
    parser.add_argument(
        "--length", type=float, default=12.0, help="mean number of words of a source sentence"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="output file; also writes OUT.en and OUT.align"
    )
    parser.add_argument(
        "--score",
        type=Path,
        help="Pharaoh file to compare with OUT.align; if set, no text is written",
    )
    options = parser.parse_args(arguments)
    plain, links = (Path(f"{options.out}.{end}") for end in ("en", "align"))
    if options.score:
        precision, recall = score(options.score, links)
        print(f"{options.score}: precision {100 * precision:.1f}%, recall {100 * recall:.1f}%")
        return
    write(
        ZipfText(types=options.types, length=options.length),
        options.pairs,
        plain,
        options.out,
        links,
    )


if __name__ == "__main__":
    main()
