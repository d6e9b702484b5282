"""Rounds of self-learning without a dictionary against the same in NumPy, in one run: `python -m benchmarks.self_learning`.

In NumPy a round is written as the paper has it (Artetxe, Labaka and Agirre 2018b, §3.3): the rotation, all similarities,
their nearest, a drawing for each direction. Vectors are made up; with everything kept both find the same pairs.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from calque.algebra.normalize import unit_rows
from calque.maps.distributions import self_learning


def plain(x: np.ndarray, z: np.ndarray, pairs: np.ndarray, keep: float, rounds: int, k: int = 10) -> np.ndarray:
    random = np.random.default_rng(0)

    def kept(scores: np.ndarray) -> np.ndarray:
        return scores if keep >= 1 else scores * (random.random(scores.shape, dtype=np.float32) < keep)

    for _ in range(rounds):
        u, _, vt = np.linalg.svd(x[pairs[:, 0]].T @ z[pairs[:, 1]])
        similar = x @ (u @ vt) @ z.T
        near_x = np.partition(similar, -k, axis=1)[:, -k:].mean(axis=1)
        near_z = np.partition(similar.T, -k, axis=1)[:, -k:].mean(axis=1)
        forward = kept(similar - near_z / 2).argmax(axis=1)
        backward = kept(similar.T - near_x / 2).argmax(axis=1)
        own = np.arange(len(x)), np.arange(len(z))
        pairs = np.stack([np.concatenate([own[0], backward]), np.concatenate([forward, own[1]])], axis=1)
    return pairs


def ours(x: np.ndarray, z: np.ndarray, pairs: np.ndarray, keep: float, rounds: int) -> np.ndarray:
    """Without an end of its own, and with `keep` as it is."""
    return self_learning(x, z, pairs, keep=keep, most_rounds=rounds, patience=rounds + 1, threshold=-9.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--words", type=int, default=5000, help="of each language")
    parser.add_argument("--dim", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5, help="measured at once")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    random = np.random.default_rng(0)
    scale = np.linspace(2, 0.5, args.dim)
    x = unit_rows(random.standard_normal((args.words, args.dim)) * scale)
    z = unit_rows(
        x @ np.linalg.qr(random.standard_normal((args.dim, args.dim)))[0] + 0.02 * random.standard_normal(x.shape)
    )
    x, z = x.astype(np.float32), z.astype(np.float32)
    pairs = np.repeat(np.arange(args.words // 2)[:, None], 2, axis=1)
    expected = plain(x, z, pairs, 1.0, 1)
    found = ours(x, z, pairs, 1.0, 1)
    print(f"{args.words:,} words, {args.dim} dimensions; pairs alike: {(found == expected).all(axis=1).mean():.2%}")
    for keep in (0.1, 1.0):
        ratios, times = [], []
        for _ in range(args.turns):
            taken = []
            for rounds in (plain, ours):
                start = time.perf_counter()
                rounds(x, z, pairs, keep, args.rounds)
                taken.append((time.perf_counter() - start) / args.rounds)
            ratios.append(taken[0] / taken[1])
            times.append(taken[1])
        print(f"keep {keep}: {np.median(times):.3f} s a round, NumPy {np.median(ratios):.1f} times as long "
              f"({min(ratios):.1f} to {max(ratios):.1f}), {args.threads} threads")  # fmt: skip


if __name__ == "__main__":
    main()
