"""Ordering key points by a beam search, against the same search in plain Python, sentence by sentence."""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch

from calque.algebra.ordering import relative_order
from calque.alignment.clcr.reordering import LinkedOrder, chosen_rows
from calque.nn.key_points import RelativeOrder
from calque.offsets import offsets_of, ranges
from calque.pairs import WordPairs
from calque.vectors import Embeddings


def made_up(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of pairs, and lengths: 12 key points on average, 2 to 40. A model that is right about three pairs of four."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(2.4, 0.45, n), 2, 40).astype(np.int64)
    scores = rng.normal(1.0, 1.5, int((lengths * (lengths - 1) // 2).sum())).astype(np.float32)
    return scores, lengths


def plain(scores: np.ndarray, lengths: np.ndarray, beam: int) -> list[float]:
    """Cost of the order of each sentence: hypotheses are lists, of equal sets the cheaper stays."""
    costs, begin = [], 0
    for n in lengths:
        table = np.zeros((n, n))
        table[np.triu_indices(n, 1)] = scores[begin : begin + n * (n - 1) // 2]
        begin += n * (n - 1) // 2
        cost = np.logaddexp(0.0, table.T - table)
        np.fill_diagonal(cost, 0.0)
        hypotheses: list[tuple[float, list[int]]] = [(0.0, [])]
        for _ in range(n):
            found: dict[frozenset[int], tuple[float, list[int]]] = {}
            for total, placed in hypotheses:
                left = [i for i in range(n) if i not in placed]
                for i in left:
                    more, members = total + cost[i, left].sum(), frozenset((*placed, i))
                    if members not in found or more < found[members][0]:
                        found[members] = (more, [*placed, i])
            hypotheses = sorted(found.values())[:beam]
        costs.append(hypotheses[0][0])
    return costs


def with_network(lengths: np.ndarray, dim: int, beam: int) -> float:
    """Seconds from vectors to orders: the scores of all pairs, and the search."""
    data = np.random.default_rng(0).standard_normal((int(lengths.sum()), dim), dtype=np.float32)
    embeddings, position = Embeddings(data, offsets_of(lengths)), ranges(np.zeros_like(lengths), lengths)
    links = WordPairs(np.repeat(np.arange(len(lengths)), lengths), position, position, n_sentences=len(lengths))
    gold, head = LinkedOrder.of(embeddings, links), RelativeOrder(dim)
    started = time.perf_counter()
    head.search(chosen_rows(embeddings, gold), *map(torch.from_numpy, (gold.positions, gold.lengths)), beam)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--plain", type=int, default=100, help="sentences that the plain search gets")
    parser.add_argument("--beam", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dim", type=int, default=768, help="of the vectors, where the network is counted in")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    scores, lengths = made_up(options.sentences)
    few = lengths[: options.plain]
    pairs = int((few * (few - 1) // 2).sum())
    relative_order(scores[:pairs], few, beam=options.beam)  # compile
    ratios, seconds = [], []
    for _ in range(options.rounds):
        started = time.perf_counter()
        _, cost = relative_order(scores, lengths, beam=options.beam)
        seconds.append(time.perf_counter() - started)
        started = time.perf_counter()
        expected = plain(scores[:pairs], few, options.beam)
        ratios.append((time.perf_counter() - started) / len(few) / (seconds[-1] / len(lengths)))
        assert np.allclose(cost[: len(few)], expected)
        print(f"{len(lengths):,} sentences in {seconds[-1]:.2f} s: {ratios[-1]:.0f} times a plain search")
    print(
        f"ordering {len(lengths):,} sentences of {lengths.mean():.1f} key points, beam {options.beam}, "
        f"{options.threads} threads: {statistics.median(seconds):.2f} s, {statistics.median(ratios):.0f} times a plain search"
    )
    seconds = [with_network(lengths, options.dim, options.beam) for _ in range(options.rounds)]
    print(f"from vectors of {options.dim} dimensions: {statistics.median(seconds):.2f} s (asked: below 60)")


if __name__ == "__main__":
    main()
