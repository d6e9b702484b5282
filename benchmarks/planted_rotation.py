"""Measure how well maps recover a planted rotation: `python -m benchmarks.planted_rotation`.

The vectors of the first language form clusters whose sizes follow Zipf's law. The second language has the same vectors in a
different order, rotated and with added noise.
"""

from __future__ import annotations

import argparse

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import csls_neighbours
from calque.maps.dictionary import DictionaryFit, WordList, fit_dictionary
from calque.maps.refine import Refinement
from calque.maps.unsupervised import fit_unsupervised

DIM, NOISE = 50, 0.8


def planted(rng: np.random.Generator, words: int) -> tuple[WordList, WordList, np.ndarray]:
    """Return the vectors of both languages, and the index of each source word's translation."""
    sizes = 1 / np.arange(1, 101)
    centres = rng.standard_normal((100, DIM)) * np.linspace(2, 0.3, DIM)
    x = centres[rng.choice(100, words, p=sizes / sizes.sum())]
    x = x + 0.7 * rng.standard_normal(x.shape) * np.linspace(1.5, 0.4, DIM)
    turn = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0]
    z = x @ turn + NOISE * rng.standard_normal(x.shape)
    order = np.argsort(np.arange(words) * np.exp(0.1 * rng.standard_normal(words)))
    place = np.empty(words, dtype=np.int64)
    place[order] = np.arange(words)
    source, target = [f"s{k}" for k in range(words)], [f"t{k}" for k in order]
    return (
        WordList(source, x.astype(np.float32)),
        WordList(target, z[order].astype(np.float32)),
        place,
    )


def right(
    fit: DictionaryFit, source: WordList, target: WordList, place: np.ndarray, known: int
) -> float:
    """Return P@1 (%) by CSLS over all words except the first `known`, which the dictionary may
    contain.
    """
    found = csls_neighbours(
        unit_rows(fit.source.transform(source.vectors)), unit_rows(target.vectors)
    ).targets[:, 0]
    return 100 * float((found == place)[known:].mean())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--words", type=int, default=3000, help="number of words in each language")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[30, 500],
        metavar="N",
        help="sizes of the dictionaries",
    )
    options = parser.parse_args(arguments)
    source, target, place = planted(np.random.default_rng(0), options.words)
    pairs, known = np.stack([np.arange(options.words), place], axis=1), max(options.sizes)
    for n in options.sizes:
        for name, how in (("plain", Refinement(rounds=0, held_out=0.0)), ("refined", Refinement())):
            fit = fit_dictionary(source, target, pairs[:n], refinement=how)
            print(f"dictionary of {n}, {name}: {right(fit, source, target, place, known):.1f}")
    fit = fit_unsupervised(source, target, start="distributions", restarts=1)
    print(f"no dictionary: {right(fit, source, target, place, known):.1f}")


if __name__ == "__main__":
    main()
