"""CLCR's transform phase against a plain loop: one sentence pair at a time, autograd, both directions, the same updates.

The plain loop is run twice: on sentences padded to a fixed number of words, as a loop that is to become a batch has them,
and on sentences as they are. Vectors are stored beforehand for all. Times are the processor's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calque.alignment.clcr.transforming import Side, Transforming
from calque.distributed import Processes
from calque.nn.transform import Transform
from calque.offsets import offsets_of
from calque.training.loop import Loop, Schedule
from calque.training.plan import BatchPlan
from calque.training.sources import ChosenWords
from calque.vectors import Embeddings

_LONGEST = 64  # words, the default of `KeyPointAlignment.max_words`


def made_up(n: int, dim: int, seed: int = 0) -> tuple[Embeddings, Embeddings]:
    """Sentences with lengths as in mixed parallel text, and translations about as long; random vectors."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(2.6, 0.6, n), 3, 60).astype(int)
    sides = []
    for several in (lengths, np.clip((lengths * rng.normal(1, 0.15, n)).round(), 1, _LONGEST).astype(int)):
        data = rng.standard_normal((several.sum(), dim)).astype(np.float32)
        sides.append(Embeddings(data, offsets_of(several)))
    return sides[0], sides[1]


def updates(sides: tuple[Embeddings, Embeddings], batch: int) -> list[np.ndarray]:
    """Sentence pairs of each update of an epoch: the same for all."""
    lengths = [sum(np.diff(side.offsets) for side in sides)]
    return [update[0] for update in BatchPlan(lengths, batch=batch, seed=0, window=1).epoch(0)]


def library(sides: tuple[Embeddings, Embeddings], batch: int) -> tuple[float, float]:
    """Sentence pairs a second of one epoch in calque, and the last loss."""
    started = time.process_time()
    numbers, maps = np.arange(len(sides[0])), _transforms(sides[0].dim)
    sources = [ChosenWords(side, np.ones(side.n_words, dtype=bool)) for side in sides]
    side, processes = Side("de", sources[0], *maps, numbers, numbers), Processes()
    objective = Transforming([side], sources[1], name="en", processes=processes, beta=0.0)
    loop = Loop(objective, schedule=Schedule(1.0, 1e-3, warmup=0.0), processes=processes, identity={})
    history = loop.run(BatchPlan(objective.lengths, batch=batch, seed=0, window=1))
    return len(numbers) / (time.process_time() - started), history[-1]["loss"]


def plain(sides: tuple[Embeddings, Embeddings], batch: int, *, padded: bool) -> tuple[float, float]:
    """The same of the plain loop."""
    started = time.process_time()
    forth, back = _transforms(sides[0].dim)
    optimiser = torch.optim.Adam([*forth.parameters(), *back.parameters()], lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    lengths = [np.diff(side.offsets) for side in sides]
    loss = 0.0
    for update in updates(sides, batch):
        optimiser.zero_grad()
        words, loss = [int(several[update].sum()) for several in lengths], 0.0
        for k in update:
            x, y = (_rows(side[int(k)], padded) for side in sides)
            m, n = (int(several[k]) for several in lengths)
            of_pair = _distances(forth(x), y, m, n).sum() / words[1] + _distances(back(y), x, n, m).sum() / words[0]
            of_pair.backward()
            loss += float(of_pair.detach())
        optimiser.step()
    return len(sides[0]) / (time.process_time() - started), loss


def _transforms(dim: int) -> tuple[Transform, Transform]:
    torch.manual_seed(0)
    return Transform(dim), Transform(dim)


def _rows(vectors: np.ndarray, padded: bool) -> Tensor:
    rows = torch.from_numpy(vectors)
    return nn.functional.pad(rows, (0, 0, 0, _LONGEST - len(rows))) if padded else rows


def _distances(keys: Tensor, queries: Tensor, m: int, n: int) -> Tensor:
    """Eq. 2 at τ = 1 for each of `n` queries and `m` keys, of which there may be more than count."""
    scores = (queries @ keys.T - keys.square().sum(1) / 2) / queries.shape[1] ** 0.5
    if len(keys) > m:
        scores = scores.masked_fill(torch.arange(len(keys)) >= m, -torch.inf)
    return (scores.softmax(1) @ keys - queries).square().mean(1)[:n]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=640)
    parser.add_argument("--dim", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for dim in options.dim:
        sides = made_up(options.pairs, dim)
        library(sides, options.batch)
        found: dict[str, list[tuple[float, float]]] = {"ours": [], "padded": [], "as they are": []}
        for _ in range(options.rounds):
            found["ours"].append(library(sides, options.batch))
            found["padded"].append(plain(sides, options.batch, padded=True))
            found["as they are"].append(plain(sides, options.batch, padded=False))
        print(
            f"{dim} dimensions, batch {options.batch}, {options.threads} threads: {_median(found['ours']):.0f} pairs/s"
        )
        for name in ("padded", "as they are"):
            ratios = [ours[0] / theirs[0] for ours, theirs in zip(found["ours"], found[name], strict=True)]
            assert abs(found["ours"][0][1] - found[name][0][1]) < 1e-3, "not the same updates"
            print(f"  {statistics.median(ratios):.2f} times a plain loop over sentences {name}", end="")
            print(f" ({min(ratios):.2f} to {max(ratios):.2f}{'; at least 5 asked' if name == 'padded' else ''})")


def _median(found: list[Any]) -> float:
    return statistics.median(speed for speed, _ in found)


if __name__ == "__main__":
    main()
