"""Updates of an ELMo's training with the scores of a few words at a time, and with all scores kept for the way back.

python -m benchmarks.bilm [--dim 128 --hidden 1024]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import Tensor

from calque.text import Sentences
from calque.training import bilm, softmax
from calque.training.bilm import BiLanguageModel

OURS = softmax.cross_entropy


def plain(states: Tensor, own: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor], hits: Tensor) -> Tensor:
    """As the formula has it, differentiated by autograd."""
    scores = torch.addmm(others[1], states, others[0].t()).float()
    struck = (hits >= 0).nonzero().squeeze(1)
    scores = scores.index_put((struck, hits[struck]), scores.new_tensor(-torch.inf))
    right = (states * own[0]).sum(1) + own[1]
    return (torch.logaddexp(scores.logsumexp(1), right) - right).sum()


def stand_in(sentences: int, words: int, rng: np.random.Generator) -> Sentences:
    """Made-up words as frequent as Zipf's law says, about 20 in a sentence."""
    forms = ["".join(rng.choice(list("abdeiklmnoprstu"), rng.integers(2, 11))) + str(k) for k in range(words)]
    lengths = rng.integers(5, 36, sentences)
    drawn = np.exp(rng.random(lengths.sum()) * np.log(words)).astype(int)
    parts = np.split(drawn, np.cumsum(lengths)[:-1])
    return Sentences.of([[forms[k] for k in part] for part in parts], "en")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    torch.set_float32_matmul_precision("medium")
    text = {"en": stand_in(20_000, 40_000, np.random.default_rng(0))}
    begun: list[float] = []
    backward = bilm._Predict.backward

    def timed(self, update):
        begun.append(time.perf_counter())
        return backward(self, update)

    bilm._Predict.backward = timed
    for threads in args.threads:
        torch.set_num_threads(threads)
        taken: dict[str, list[float]] = {"ours": [], "plain": []}
        losses = {}
        for _ in range(args.rounds):
            for name, loss in (("plain", plain), ("ours", OURS)):
                softmax.cross_entropy = loss
                model = BiLanguageModel(dim=args.dim, hidden=args.hidden, updates=args.updates)
                model.train(text)
                taken[name].append((begun[-1] - begun[2]) / (len(begun) - 3))  # the first two warm up
                begun.clear()
                losses[name] = model.history[-1]["loss"]
        ratios = np.array(taken["plain"]) / np.array(taken["ours"])
        print(f"{threads} threads: {np.median(taken['ours']):.3f} s an update, all scores kept")
        print(f"  {np.median(ratios):.2f} times as long ({ratios.min():.2f} to {ratios.max():.2f})")
        print(f"  losses {losses['ours']:.4f} and {losses['plain']:.4f}")


if __name__ == "__main__":
    main()
