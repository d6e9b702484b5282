"""What maps find again of a rotation that was planted, and what must be equal and is: `python -m benchmarks.recovery`.

Vectors stand in clusters whose sizes follow Zipf's law; the other language is the same turned, with noise, in another order.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
from scipy.linalg import orthogonal_procrustes

from benchmarks.stand_in import stand_in_text
from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import csls_neighbours
from calque.encoders import load_encoder
from calque.encoders.elmo import ElmoEncoder
from calque.maps.dictionary import DictionaryFit, WordList, fit_dictionary
from calque.maps.refine import Refinement
from calque.maps.unsupervised import fit_unsupervised
from calque.nn.elmo import ElmoNetwork, elmo_options

WORDS, DIM, NOISE = 3000, 50, 0.8


def planted(rng: np.random.Generator) -> tuple[WordList, WordList, np.ndarray]:
    """Both languages, and where each source word's translation stands."""
    sizes = 1 / np.arange(1, 101)
    centres = rng.standard_normal((100, DIM)) * np.linspace(2, 0.3, DIM)
    x = centres[rng.choice(100, WORDS, p=sizes / sizes.sum())]
    x = x + 0.7 * rng.standard_normal(x.shape) * np.linspace(1.5, 0.4, DIM)
    turn = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0]
    z = x @ turn + NOISE * rng.standard_normal(x.shape)
    order = np.argsort(np.arange(WORDS) * np.exp(0.1 * rng.standard_normal(WORDS)))
    place = np.empty(WORDS, dtype=np.int64)
    place[order] = np.arange(WORDS)
    words = [f"s{k}" for k in range(WORDS)], [f"t{k}" for k in order]
    return WordList(words[0], x.astype(np.float32)), WordList(words[1], z[order].astype(np.float32)), place


def right(fit: DictionaryFit, source: WordList, target: WordList, place: np.ndarray) -> float:
    """P@1 by CSLS of all words but the 500 that dictionaries may hold, in percent."""
    found = csls_neighbours(unit_rows(fit.source.transform(source.vectors)), unit_rows(target.vectors)).targets[:, 0]
    return 100 * float((found == place)[500:].mean())


def maps() -> None:
    source, target, place = planted(np.random.default_rng(0))
    pairs = np.stack([np.arange(WORDS), place], axis=1)
    none = Refinement(rounds=0, held_out=0.0)
    for n in (30, 500):
        plain, refined = (fit_dictionary(source, target, pairs[:n], refinement=how) for how in (none, Refinement()))
        print(
            f"dictionary of {n}: {right(plain, source, target, place):.1f}, refined {right(refined, source, target, place):.1f}"
        )
    fit = fit_unsupervised(source, target, start="distributions", restarts=1)
    print(
        f"distributions: {right(fit, source, target, place):.1f}; failed: {fit.verdict is not None and fit.verdict.failed}"
    )
    ours = fit_dictionary(source, target, pairs[:500], normalise="none", refinement=none).source
    x, z = source.vectors[:500].astype(float), target.vectors[place[:500]].astype(float)
    print(f"from scipy's Procrustes: {np.abs(ours.matrix - orthogonal_procrustes(x, z)[0]).max():.1e} (asked: 1e-10)")


def elmo() -> None:
    encoder = ElmoEncoder(ElmoNetwork(elmo_options(dim=128, hidden=1024)))
    text = stand_in_text(300)[0].source
    together = encoder.encode_layers(text, [0, 1, 2])
    apart = 0.0
    for k in range(len(text)):
        alone = encoder.encode_layers(text[k : k + 1], [0, 1, 2])
        apart = max(apart, *(float(np.abs(alone[layer].data - together[layer][k]).max()) for layer in alone))
    print(
        f"ELMo, 300 sentences alone and in batches: {apart:.1e} apart, {np.abs(together[2].data).max():.1f} the largest value"
    )
    with TemporaryDirectory() as folder:
        one, two = Path(folder, "one"), Path(folder, "two")
        encoder.save(one)
        load_encoder(one).save(two)
        with h5py.File(one / "weights.hdf5") as a, h5py.File(two / "weights.hdf5") as b:
            names: list[str] = []
            a.visit(names.append)
            arrays = [name for name in names if isinstance(a[name], h5py.Dataset)]
            same = all(np.array_equal(a[name][...], b[name][...]) for name in arrays)
        vectors = np.array_equal(encoder.encode(text).data, load_encoder(two).encode(text).data)
    print(f"HDF5 written, read and written: {len(arrays)} arrays equal: {same}; vectors equal: {vectors}")


if __name__ == "__main__":
    maps()
    elmo()
