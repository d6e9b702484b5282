"""Does a student rank pairs of sentences as its teacher does? Spearman's rank correlation of their cosines, over pairs drawn at
random, nearly all of which have nothing to do with each other, and over graded ones, as sets of semantic similarity have them:
each sentence with those that are its 1st, 2nd, 4th, 8th, ... nearest by the teacher."""

from __future__ import annotations

import argparse

import numpy as np
import torch
from scipy.stats import spearmanr

from calque.algebra.normalize import unit_rows
from calque.corpora import read_parallel
from calque.encoders import load_encoder
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.text import Sentences


def units(name: str, sentences: Sentences) -> np.ndarray:
    """Sentence vectors of length 1."""
    encoder = load_encoder(name)
    return unit_rows(sentence_vectors(encoder, sentences, SentencePooling.of(encoder)).data)


def random_pairs(n: int, pairs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of two of n, each with another."""
    first = rng.integers(n, size=pairs)
    return first, (first + rng.integers(1, n, size=pairs)) % n


def graded_pairs(teacher: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each row with those that stand at places 1, 2, 4, 8, ... of the others, by cosine."""
    n = len(teacher)
    cosines = teacher @ teacher.T
    np.fill_diagonal(cosines, -np.inf)
    places = 2 ** np.arange((n - 1).bit_length()) - 1
    near = np.argsort(-cosines, axis=1, kind="stable")[:, places[places < n - 1]]
    return np.repeat(np.arange(n), near.shape[1]), near.ravel()


def correlation(student: np.ndarray, teacher: np.ndarray, pairs: tuple[np.ndarray, np.ndarray]) -> float:
    """Spearman's, of the cosines of some pairs of rows."""
    i, j = pairs
    return float(spearmanr(np.sum(student[i] * student[j], axis=1), np.sum(teacher[i] * teacher[j], axis=1)).statistic)  # type: ignore[attr-defined]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("students", nargs="+", help="folders of sentence encoders")
    parser.add_argument("--teacher", required=True)
    parser.add_argument("--test", nargs="+", required=True, help="parallel texts, of which the first language is read")
    parser.add_argument("--langs", nargs=2, default=("en", "de"))
    parser.add_argument("--limit", type=int, default=1_000, help="of each --test")
    parser.add_argument("--pairs", type=int, default=50_000, help="drawn at random")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    texts = [
        read_parallel(path, langs=tuple(given.langs), pretokenized=True, limit=given.limit).source
        for path in given.test
    ]
    teachers = [units(given.teacher, text) for text in texts]
    for name in given.students:
        found = []
        for path, text, teacher in zip(given.test, texts, teachers, strict=True):
            student = units(name, text)
            drawn = random_pairs(len(text), given.pairs, np.random.default_rng(0))
            found.append([correlation(student, teacher, pairs) for pairs in (drawn, graded_pairs(teacher))])
            print(f"{name}, {path}: at random {found[-1][0]:.3f}, graded {found[-1][1]:.3f}")
        mean = np.mean(found, axis=0)
        print(f"{name}, mean: at random {mean[0]:.3f}, graded {mean[1]:.3f}")


if __name__ == "__main__":
    main()
