"""Compare encoders before and after alignment with few sentence pairs, and mark the scores that fell.

    python -m benchmarks.never_worse mini e5-small --train en-de=train.en-de.tsv.gz --test en-de=dev.en-de.tsv
    python -m benchmarks.never_worse en=marian-en,fr=marian-fr --train en-fr=train.tsv --test en-fr=dev.tsv --methods rotation

Scores are the accuracy of word retrieval over pairs that are not linked in the training text, and the accuracy of sentence
retrieval by the mean vectors of words. Encoders are read in the same way before and after alignment. --option shrinkage=0 fits
the maps of the papers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calque.alignment import METHODS, options_of_method
from calque.alignment.driver import align
from calque.corpora import read_parallel
from calque.corpora.languages import pair_and_path
from calque.encoders import load_encoder
from calque.pairs import WordPairs
from calque.spec import parsed
from calque.tasks.base import Score, Task
from calque.tasks.retrieval import WordRetrieval
from calque.tasks.sentences import SentenceRetrieval
from calque.text import ParallelCorpus
from calque.wordalign import align_words

UNALIGNED = "none"
TOLERANCE = 1.0  # loss in points up to which a score counts as not worse


def test_text(path: str, langs: tuple[str, str], n: int) -> tuple[ParallelCorpus, WordPairs]:
    """Return `n` evenly spaced sentence pairs with their word links; all pairs of the file are
    linked together.
    """
    corpus = read_parallel(path, langs=langs, on_error="skip")
    links = align_words(corpus)
    chosen = np.unique(np.linspace(0, len(corpus) - 1, min(n, len(corpus))).astype(int))
    return corpus.take(chosen), links.take(chosen)


def tasks_for(test: tuple[ParallelCorpus, WordPairs], train: ParallelCorpus) -> dict[str, Task]:
    """Return the tasks by the name of their score."""
    corpus, links = test
    words = WordRetrieval(corpus, links, train=train, train_pairs=align_words(train), bootstrap=200)
    sentences = SentenceRetrieval(corpus, sentence_pooling="words", bootstrap=200)
    return {"unseen words": words, "sentences": sentences}


def rows(encoder: Any, name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the scores of an encoder before and after alignment, for each pair of languages, number
    of sentence pairs and method.
    """
    train_paths = dict(pair_and_path(text) for text in options.train)
    for text in options.test:
        langs, path = pair_and_path(text)
        assert langs is not None  # `main` has checked the languages
        test = test_text(path, langs, options.sentences)
        for size in options.sizes:
            train = read_parallel(train_paths[langs], langs=langs, on_error="skip", limit=size)
            tasks = tasks_for(test, train)
            for method in (UNALIGNED, *options.methods):
                aligned = encoder
                if method != UNALIGNED:
                    settings = settings_of(method, options.option)
                    aligned = align(encoder, train, method, towards=langs[0], **settings)
                about = {"encoder": name, "langs": "-".join(langs), "pairs": size, "method": method}
                for score_name, task in tasks.items():
                    score = task.evaluate(aligned)[0]
                    yield {**about, "score": score_name, **shown(score)}


def settings_of(method: str, given: Sequence[str]) -> dict[str, Any]:
    """Return the given options, NAME=VALUE, that the method has."""
    known = options_of_method(method)
    settings = {}
    for text in given:
        name, _, value = text.partition("=")
        if name in known:
            settings[name] = parsed(name, value, known[name].type)
    return settings


def shown(score: Score) -> dict[str, Any]:
    """Return the value of a score and its interval in per cent, and the number of queries."""
    numbers = {"value": score.value, "low": score.low, "high": score.high}
    return {name: round(100 * number, 2) for name, number in numbers.items()} | {"n": score.n}


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return one line for each encoder, pair of languages, size and score, with one column for each
    method; scores that fell by more than `TOLERANCE` points are marked with an exclamation mark.
    """
    methods = list(dict.fromkeys(row["method"] for row in found))
    keys = ("encoder", "langs", "pairs", "score")
    lines = ["  ".join([*keys, *(f"{method:>19}" for method in methods)])]
    for key in dict.fromkeys(tuple(row[name] for name in keys) for row in found):
        values = {}
        for row in found:
            if tuple(row[name] for name in keys) == key:
                values[row["method"]] = row["value"]
        cells = []
        for method in methods:
            fell = values[method] < values[UNALIGNED] - TOLERANCE
            cells.append(f"{values[method]:18.1f}{'!' if fell else ' '}")
        lines.append("  ".join([*map(str, key), *cells]))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("encoders", nargs="+", metavar="ENCODER", help="folder, hub name or mini")
    parser.add_argument(
        "--train", nargs="+", required=True, metavar="en-de=FILE", help="training texts"
    )
    parser.add_argument("--test", nargs="+", required=True, metavar="en-de=FILE", help="test texts")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["rotation", "normalized-rotation", "linear", "standardize", "means"],
        choices=list(METHODS),
        help="methods to compare with no alignment",
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[50, 500, 2000], help="numbers of training pairs"
    )
    parser.add_argument("--sentences", type=int, default=300, help="number of test sentence pairs")
    parser.add_argument("--pooling", help="pooling of the encoders")
    parser.add_argument("--layer", type=int, help="layer of the encoders")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="option of the methods"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON Lines file to which the scores are appended")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    for text in (*options.train, *options.test):
        langs, path = pair_and_path(text)
        if langs is None:
            parser.error(f"put the languages before the file, e.g. en-de={path}")
    reading = {"pooling": options.pooling, "layer": options.layer}
    reading = {name: value for name, value in reading.items() if value is not None}
    for name in options.encoders:
        found = []
        for row in rows(load_encoder(name, alike=True, **reading), name, options):
            found.append(row)
            if options.out is not None:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        print(table(found), flush=True)


if __name__ == "__main__":
    main()
