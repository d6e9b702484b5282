"""Sentence vectors of a static student against those of its parent, in turns within one run: sentences a second of processor
time, and how often the nearest of all sentences is the translation."""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import cosine_neighbours
from calque.corpora import read_parallel
from calque.encoders import load_encoder
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.text import ParallelCorpus, Sentences


class Contestant:
    """An encoder with its own pooling."""

    def __init__(self, name: str):
        self.name = name
        self.encoder = load_encoder(name)
        self.pooling = SentencePooling.of(self.encoder)

    def rate(self, sentences: Sentences) -> float:
        """Sentences a second of processor time; the encoder is opened anew, so that no word is known from before."""
        encoder = load_encoder(self.name)
        sentence_vectors(encoder, sentences[:8], self.pooling)
        start = time.process_time()
        sentence_vectors(encoder, sentences, self.pooling)
        return len(sentences) / (time.process_time() - start)

    def accuracy(self, corpus: ParallelCorpus) -> float:
        """Mean of both directions."""
        source, target = (
            unit_rows(sentence_vectors(self.encoder, side, self.pooling).data)
            for side in (corpus.source, corpus.target)
        )
        found = cosine_neighbours(source, target)
        own = np.arange(len(corpus))
        return float(((found.targets[:, 0] == own).mean() + (found.sources[:, 0] == own).mean()) / 2)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("static", help="folder of a static student")
    parser.add_argument("parent", help="the encoder that it was distilled from, or another")
    parser.add_argument("--speed", required=True, help="parallel text whose sentences are encoded, both sides")
    parser.add_argument("--test", nargs="+", default=[], help="parallel texts, each translation among all")
    parser.add_argument("--langs", nargs=2, default=("en", "de"))
    parser.add_argument("--sentences", type=int, default=20_000, help="that the static student encodes in a turn")
    parser.add_argument(
        "--parents", type=int, default=2_000, help="that the parent encodes in a turn: the first of these"
    )
    parser.add_argument("--limit", type=int, default=1_000, help="of each --test")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    langs = tuple(given.langs)
    text = read_parallel(given.speed, langs=langs, pretokenized=True, limit=given.sentences // 2)
    sides = Sentences.joined([text.source, text.target])
    both = sides.take(np.random.default_rng(0).permutation(len(sides)))
    static, parent = Contestant(given.static), Contestant(given.parent)
    ratios = []
    for turn in range(given.rounds):
        fast, slow = static.rate(both), parent.rate(both[: given.parents])
        ratios.append(fast / slow)
        print(
            f"turn {turn + 1}: {fast:,.0f} and {slow:,.0f} sentences a second of processor time, {ratios[-1]:.1f} times"
        )
    print(f"median {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})")
    for path in given.test:
        corpus = read_parallel(path, langs=langs, pretokenized=True, limit=given.limit)
        share = static.accuracy(corpus), parent.accuracy(corpus)
        print(
            f"{path}: accuracy {100 * share[0]:.1f} and {100 * share[1]:.1f}, {share[0] / max(share[1], 1e-9):.2f} times"
        )


if __name__ == "__main__":
    main()
