"""Parallel text of any length, made up by a known dictionary: `python -m benchmarks.zipf --pairs 10000000 --out FILE`.

Source words are drawn by Zipf's law, and each is translated by its entry; a word in ten has a second entry, which is drawn one
time in four. Neighbours change places as in real translations, words are left out and others come from nothing. So the true
links are known, and the text has what makes large text hard: a vocabulary that grows with it, and most pairs of words seen
once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from calque.offsets import offsets_of
from calque.storage import from_numpy

BLOCK = 1 << 16  # sentence pairs made at a time
POLL = 0.05  # seconds between two looks at the memory
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


class ZipfText:
    """Made-up sentence pairs.

    Args:
        types: source words that there are.
        exponent: of Zipf's law.
        length: words of a source sentence in the mean; at least 2.
        dropped, added: share of the source words without a translation, and of target words that come from nothing.
        moved: how far words stray from the order of the source, standard deviation in words.
        seed: of everything.
    """

    def __init__(
        self, *, types: int = 400_000, exponent: float = 1.05, length: float = 12.0, dropped: float = 0.08,
        added: float = 0.08, moved: float = 0.8, seed: int = 0,
    ):  # fmt: skip
        self.types, self.length, self.seed = types, length, seed
        self.dropped, self.added, self.moved = dropped, added, moved
        chance = 1 / np.arange(1, types + 1) ** exponent
        self._ends = np.cumsum(chance / chance.sum())
        rng = np.random.default_rng([seed, 0])
        self._first = rng.permutation(types)  # target word of every source word: frequent ones do not share their rank
        self._second = np.where(rng.random(types) < 0.1, rng.integers(0, types, types), self._first)

    @property
    def translations(self) -> np.ndarray:
        """The first entry of every source word, int64 `[types]`."""
        return self._first

    def word(self, number: int, side: str) -> str:
        """How a word is spelt: source and target words never look alike."""
        spelled, rest = "", number + 70
        while rest:
            spelled += SYLLABLES[rest % 70]
            rest //= 70
        return f"{spelled}x" if side == "source" else f"w{spelled[::-1]}"

    def block(self, number: int, n: int) -> tuple[np.ndarray, ...]:
        """`n` sentence pairs as numbers of words, the same whenever they are asked for.

        Returns:
            source words and their offsets; target words, their offsets, and the position of the source word each translates
            (−1: none).
        """
        rng = np.random.default_rng([self.seed, 1, number])
        lengths = 2 + rng.poisson(self.length - 2, n)
        offsets = offsets_of(lengths)
        source = np.minimum(np.searchsorted(self._ends, rng.random(offsets[-1])), self.types - 1)
        target = np.where(rng.random(len(source)) < 0.25, self._second[source], self._first[source])
        sentence, position = np.repeat(np.arange(n), lengths), np.arange(len(source)) - np.repeat(offsets[:-1], lengths)
        place = position + rng.normal(0, self.moved, len(source))
        kept = (rng.random(len(source)) >= self.dropped) | (position == 0)
        new = np.flatnonzero(rng.random(len(source)) < self.added)
        words = np.concatenate([target[kept], np.searchsorted(self._ends, rng.random(len(new)))])
        of = np.concatenate([sentence[kept], sentence[new]])
        order = np.lexsort((np.concatenate([place[kept], place[new]]), of))
        come_from = np.concatenate([position[kept], np.full(len(new), -1)])[order]
        counts = np.bincount(of, minlength=n)
        return source, offsets, np.minimum(words[order], self.types - 1), offsets_of(counts), come_from

    def blocks(self, pairs: int) -> Iterator[tuple[np.ndarray, ...]]:
        """So many sentence pairs, a block of them at a time."""
        for number, begin in enumerate(range(0, pairs, BLOCK)):
            yield self.block(number, min(BLOCK, pairs - begin))


def write(text: ZipfText, pairs: int, path: Path) -> int:
    """Write `source ||| target` lines, or an Arrow file that `ParallelCorpus.open` maps, by the name's end.

    Returns:
        words of both sides.
    """
    import pyarrow as pa

    from calque.text import corpus_record

    spelled = {
        side: pa.array([text.word(k, side) for k in range(text.types)], pa.string()) for side in ("source", "target")
    }
    n_words = 0
    record = corpus_record(("en", "de"), skipped={}, first_skipped={}, segmenters=("", ""), path=None)
    words = pa.list_(pa.string())
    schema = pa.schema([("source", words), ("target", words)], metadata=record)
    with path.open("wb") as file:
        arrow = pa.ipc.new_file(file, schema) if path.suffix == ".arrow" else None
        for source, source_offsets, target, target_offsets, _ in text.blocks(pairs):
            n_words += len(source) + len(target)
            sides = [
                pa.ListArray.from_arrays(from_numpy(offsets.astype(np.int32)), spelled[side].take(from_numpy(numbers)))
                for side, numbers, offsets in (
                    ("source", source, source_offsets), ("target", target, target_offsets),
                )
            ]  # fmt: skip
            if arrow is not None:
                arrow.write_batch(pa.record_batch(sides, schema=schema))
                continue
            for left, right in zip(*(side.to_pylist() for side in sides), strict=True):
                file.write(f"{' '.join(left)} ||| {' '.join(right)}\n".encode())
        if arrow is not None:
            arrow.close()
    return n_words


def score(text: ZipfText, pairs: int, links: Path) -> tuple[float, float]:
    """Precision and recall of a Pharaoh file."""
    found = true = both = 0
    with links.open() as file:
        for _, _, _, offsets, come_from in text.blocks(pairs):
            for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
                right = {f"{i}-{j}" for j, i in enumerate(come_from[begin:end].tolist()) if i >= 0}
                mine = set(next(file).split())
                found, true, both = found + len(mine), true + len(right), both + len(right & mine)
    return both / max(1, found), both / max(1, true)


def anonymous_mib(pid: int) -> float:
    """Memory of a process now, without pages of mapped files, which the system may take back; 0 where nobody says."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")), 0.0)


def measure(text: ZipfText, pairs: int, folder: Path, more: list[str]) -> str:
    """`calque words` on so many sentence pairs, as one command: processor time, clock, peak memory, and what it found."""
    source, links = folder / f"{pairs}.arrow", folder / f"{pairs}.align"
    n_words = write(text, pairs, source)
    command = [
        sys.executable,
        "-m",
        "calque",
        "words",
        str(source),
        "--langs",
        "en",
        "de",
        "--out",
        str(links),
        "--quiet",
    ]
    begun = time.monotonic()
    running = subprocess.Popen([*command, *more])
    anonymous, status, used = 0.0, None, None
    while used is None:
        anonymous = max(anonymous, anonymous_mib(running.pid))
        time.sleep(POLL)
        done, status, spent = os.wait4(running.pid, os.WNOHANG)
        used = spent if done else None
    if status:
        sys.exit(f"calque words failed with {pairs:,} sentence pairs")
    taken = time.monotonic() - begun
    precision, recall = score(text, pairs, links)
    source.unlink()
    links.unlink()
    return (
        f"{pairs:>10,} pairs, {n_words:>11,} words: {used.ru_utime + used.ru_stime:8.1f} s of processors, {taken:8.1f} s by the "
        f"clock, peak {used.ru_maxrss / 2**10:6,.0f} MiB, {anonymous:6,.0f} without mapped files; "
        f"precision {100 * precision:.1f}, recall {100 * recall:.1f}"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--types", type=int, default=400_000)
    parser.add_argument("--length", type=float, default=12.0, help="words of a source sentence")
    parser.add_argument("--out", type=Path, help="write the text here: an .arrow file, or a ||| b")
    parser.add_argument("--score", type=Path, help="compare this Pharaoh file with the true links")
    parser.add_argument(
        "--curve", type=int, nargs="+", metavar="PAIRS", help="run calque words on texts of these sizes"
    )
    parser.add_argument("--words-options", default="--model hmm", help="further options of calque words for --curve")
    options = parser.parse_args(arguments)
    text = ZipfText(types=options.types, length=options.length)
    for pairs in options.curve or ():
        with tempfile.TemporaryDirectory() as folder:
            print(measure(text, pairs, Path(folder), options.words_options.split()), flush=True)
    if options.out:
        print(f"{options.pairs:,} sentence pairs, {write(text, options.pairs, options.out):,} words in {options.out}")
    if options.score:
        precision, recall = score(text, options.pairs, options.score)
        print(f"{options.score}: precision {100 * precision:.1f}, recall {100 * recall:.1f} per cent")


if __name__ == "__main__":
    main()
