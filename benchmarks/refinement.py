"""P@1 of maps between static vectors of small texts, refined and not: `python -m benchmarks.refinement DATA`.

The vectors count: positive pointwise mutual information of words up to five apart, and its singular vectors (Levy, Goldberg
and Dagan 2015), which on texts of a million words and less are better than those of fastText. Every source word of the
dictionary with vectors on both sides is tested once, by a map of the other four fifths.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.linalg import svds

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import cosine_neighbours, csls_neighbours
from calque.corpora import read_dictionary, read_sentences
from calque.maps.dictionary import WordList, fit_dictionary, seed_pairs
from calque.maps.refine import Refinement
from calque.text import Sentences

FOLDS = 5
HOW = {"dictionary alone": Refinement(rounds=0, held_out=0), "refined": Refinement(frequent=3000)}


def count_vectors(
    text: Sentences, *, dim: int = 200, window: int = 5, smoothing: float = 0.75, power: float = 0.5, at_least: int = 3
) -> WordList:
    """Words of a text and their vectors, the most frequent first.

    Args:
        text: sentences; letters are made small, and what has none is left out.
        dim: singular vectors.
        window: words to each side; one at distance `k` counts `(window + 1 - k) / window`.
        smoothing: power of the contexts' frequencies.
        power: of the singular values.
        at_least: occurrences that a word needs.
    """
    lines = [[word for word in map(str.lower, sentence.words) if any(c.isalnum() for c in word)] for sentence in text]
    counts = Counter(word for line in lines for word in line)
    words = [word for word, n in counts.most_common() if n >= at_least]
    number = {word: k for k, word in enumerate(words)}
    # one long row of numbers, with gaps as wide as the window between sentences
    row = np.concatenate([[*(number.get(word, -1) for word in line), *[-1] * window] for line in lines])
    near = csr_matrix((len(words), len(words)))
    for distance in range(1, window + 1):
        left, right = row[:-distance], row[distance:]
        both = (left >= 0) & (right >= 0)
        weights = np.full(both.sum(), (window + 1 - distance) / window)
        near = near + coo_matrix((weights, (left[both], right[both])), shape=near.shape).tocsr()
    near = (near + near.T).tocoo()
    of_word = np.asarray(near.sum(axis=1)).ravel()
    of_context = of_word**smoothing
    information = np.log(near.data * of_context.sum() / (of_word[near.row] * of_context[near.col]))
    more = information > 0
    table = csr_matrix((information[more], (near.row[more], near.col[more])), shape=near.shape)
    left, values, _ = svds(table, k=dim, random_state=0)
    return WordList(words, (left * values**power).astype(np.float32))


def precision(source: WordList, target: WordList, pairs: np.ndarray, how: Refinement) -> np.ndarray:
    """P@1 by cosine and by CSLS over all source words of the pairs, each tested by a map of the other folds."""
    words = np.random.default_rng(0).permutation(np.unique(pairs[:, 0]))
    right = np.zeros(2)
    for fold in range(FOLDS):
        tested = np.isin(pairs[:, 0], words[fold::FOLDS])
        fit = fit_dictionary(source, target, pairs[~tested], refinement=how)
        x, z, queries = unit_rows(fit.source.transform(source.vectors)), unit_rows(target.vectors), words[fold::FOLDS]
        gold = {tuple(pair) for pair in pairs[tested].tolist()}
        for k, search in enumerate((cosine_neighbours, csls_neighbours)):
            found = search(x, z, source_queries=queries, target_queries=queries[:0]).targets[:, 0]
            right[k] += sum(pair in gold for pair in zip(queries.tolist(), found.tolist(), strict=True))
    return 100 * right / len(words)


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("data", type=Path, help="folder with mono/LANG.txt.gz and dict/train.en-LANG.tsv")
    options.add_argument("--langs", nargs="+", default=["de", "fr", "ru", "tr"])
    options.add_argument("--most", type=int, default=5000, help="frequent words of each side")
    given = options.parse_args()
    sides = {}
    for lang in ["en", *given.langs]:
        vectors = count_vectors(read_sentences(given.data / "mono" / f"{lang}.txt.gz", lang=lang))
        sides[lang] = WordList(vectors.words[: given.most], vectors.vectors[: given.most])
    for lang in given.langs:
        entries = read_dictionary(given.data / "dict" / f"train.en-{lang}.tsv", langs=("en", lang))
        pairs, _, _ = seed_pairs(entries, sides["en"].words, sides[lang].words)
        print(f"en-{lang}: {len(np.unique(pairs[:, 0])):,} source words", flush=True)
        for name, how in HOW.items():
            cosine, csls = precision(sides["en"], sides[lang], pairs, how)
            print(f"  {name:18} cosine {cosine:5.1f}  CSLS {csls:5.1f}", flush=True)
