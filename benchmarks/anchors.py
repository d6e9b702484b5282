"""Anchors against a literal transcription of the published loop (Schuster et al. 2019), on the same vectors."""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from benchmarks.stand_in import stand_in_text
from calque.anchors import AnchorSums
from calque.encoders.anchors import frequent_words
from calque.text import Sentences
from calque.vectors import Embeddings


def published_loop(
    sentences: list[tuple[str, ...]], layers: dict[int, np.ndarray], vocabulary: dict[str, int]
) -> tuple[dict[int, np.ndarray], dict[int, float]]:
    """`gen_anchors.py`, written down again: for each word and layer a running mean in float64, and one of the norms."""
    anchors = {layer: np.zeros((len(vocabulary), data.shape[1])) for layer, data in layers.items()}
    norms, counts, total, row = dict.fromkeys(layers, 0.0), np.zeros(len(vocabulary)), 0, 0
    for sentence in sentences:
        for word in sentence:
            if word in vocabulary:
                number = vocabulary[word]
                n = counts[number]
                for layer, data in layers.items():
                    vector = data[row]
                    anchors[layer][number] = anchors[layer][number] * (n / (n + 1)) + vector / (n + 1)
                    norms[layer] = norms[layer] * (total / (total + 1)) + float(np.linalg.norm(vector)) / (total + 1)
                counts[number] += 1
                total += 1
            row += 1
    return anchors, norms


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=5_000)
    parser.add_argument("--vocabulary", type=int, default=5_000, help="the most frequent words: only they get anchors")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--block", type=int, default=512, help="sentences that are added at a time")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    corpus, _ = stand_in_text(options.sentences)
    text = Sentences.of([sentence.words for sentence in corpus.source], "en")
    offsets = np.concatenate([[0], np.cumsum(text.lengths())])
    rng = np.random.default_rng(0)
    layers = {n: rng.standard_normal((offsets[-1], options.dim), dtype=np.float32) for n in range(options.layers)}
    plain = [sentence.words for sentence in text]
    vocabulary = {word: k for k, word in enumerate(frequent_words(text, options.vocabulary))}

    def ours() -> AnchorSums:
        sums = AnchorSums(options.dim, layers=range(options.layers), vocabulary=vocabulary, lang="en")
        for start in range(0, len(text), options.block):
            part = text[start : start + options.block]
            first, last = offsets[start], offsets[start + len(part)]
            bounds = offsets[start : start + len(part) + 1] - first
            sums.add(part, {layer: Embeddings(data[first:last], bounds) for layer, data in layers.items()})
        return sums

    found, norms = published_loop(plain, layers, vocabulary)
    worst = 0.0
    for layer, anchors in ours().finish().items():  # also compiles the loops
        slow = found[layer][[vocabulary[word] for word in anchors.words]]
        worst = max(worst, float(np.abs(anchors.vectors - slow).max()), abs((anchors.mean_norm or 0) - norms[layer]))
    times: dict[str, list[float]] = {"ours": [], "published": []}
    for _ in range(options.rounds):
        started = time.process_time()
        ours().finish()
        middle = time.process_time()
        published_loop(plain, layers, vocabulary)
        times["ours"].append(middle - started)
        times["published"].append(time.process_time() - middle)
    ratios = [slow / fast for slow, fast in zip(times["published"], times["ours"], strict=True)]
    slow, fast = (statistics.median(times[name]) for name in ("published", "ours"))
    print(
        f"anchors of {offsets[-1]:,} words × {options.layers} layers × {options.dim}, medians of {options.rounds} turns:"
    )
    print(
        f"  published loop {slow:.2f} s of the processor, ours {fast:.3f} s: {statistics.median(ratios):.1f} times as fast"
    )
    print(f"  ({min(ratios):.1f} to {max(ratios):.1f})")
    print(f"  largest difference {worst:.1e} (at most 1e-6 asked)")


if __name__ == "__main__":
    main()
