"""Updates of an ELMo's training, a few words' scores at a time and with all of them kept: `python -m benchmarks.bilm`."""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import Tensor

from benchmarks.stand_in import stand_in_text
from calque.pretraining import bidirectional, softmax
from calque.pretraining.bidirectional import BiLanguageModel

OURS = softmax.cross_entropy


def plain(states: Tensor, own: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor], hits: Tensor, **_) -> Tensor:
    """As the formula has it, differentiated by autograd."""
    scores = torch.addmm(others[1], states, others[0].t()).float()
    hits = hits.squeeze(1)
    struck = (hits >= 0).nonzero().squeeze(1)
    scores = scores.index_put((struck, hits[struck]), scores.new_tensor(-torch.inf))
    right = (states * own[0].squeeze(1)).sum(1) + own[1].squeeze(1)
    return (torch.logaddexp(scores.logsumexp(1), right) - right).sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    torch.set_float32_matmul_precision("medium")
    text = {"en": stand_in_text(20_000)[0].source}
    begun: list[float] = []
    backward = bidirectional.WordPrediction.backward

    def timed(self, update):
        begun.append(time.perf_counter())
        return backward(self, update)

    bidirectional.WordPrediction.backward = timed
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
