"""Absolute figures on a graphics card, whose name is printed: sentences encoded a second, sentence pairs trained a second,
seconds of CSLS. `benchmarks/gpu.sh` starts it. Random weights compute as fast as trained ones."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.stand_in import stand_in_encoder, stand_in_text
from calque.algebra.similarity import csls_neighbours
from calque.alignment.contrastive import Contrastive
from calque.alignment.finetune import FineTune
from calque.encoders.numerics import TRAINING_PRECISIONS

SHAPES = {"mini": (6, 128), "BERT-base": (12, 768)}
_UNTIMED = 3  # updates, in which kernels are chosen


def ready(device: torch.device) -> float:
    """The time, once the card has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def middle(action: Callable[[], Any], device: torch.device, rounds: int) -> float:
    """Median of the seconds of an action, which is done once more beforehand."""
    action()
    seconds = []
    for _ in range(rounds):
        begun = ready(device)
        action()
        seconds.append(ready(device) - begun)
    return statistics.median(seconds)


def encoding(encoder: Any, n: int, device: torch.device, rounds: int) -> float:
    """Sentences a second."""
    corpus, _ = stand_in_text(n)
    return n / middle(lambda: encoder.encode(corpus.source), device, rounds)


def training(kind: type, encoder: Any, *, batch: int, updates: int, precision: str, device: torch.device) -> float:
    """Sentence pairs a second of the updates themselves, without what is prepared before the first."""
    corpus, pairs = stand_in_text(batch * updates)
    tuner = kind(towards="en", batch=batch, learning_rate=1e-5, epochs=1.0, precision=precision, max_words=None)
    usual, begun = tuner.loss, []

    def loss(groups: Any, processes: Any, **more: Any) -> Any:
        begun.append(ready(device))
        return usual(groups, processes, **more)

    tuner.loss = loss
    tuner.tune(encoder, corpus, pairs)
    return batch * (len(begun) - 1 - _UNTIMED) / (begun[-1] - begun[_UNTIMED])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="cpu tries the script where there is no card")
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--batches", nargs="+", type=int, default=[32, 256])
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--vectors", type=int, default=100_000, help="of CSLS, a side, of 768 dimensions")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("no graphics card here that PyTorch can use: nothing is measured")
        return
    name = torch.cuda.get_device_name() if device.type == "cuda" else "the processor"
    print(f"{name}, torch {torch.__version__}")
    for shape in options.shapes:
        layers, dim = SHAPES[shape]
        encoder = stand_in_encoder(layers=layers, dim=dim)
        encoder.model.to(device)
        encoder.budget = 16_384 if device.type == "cuda" else encoder.budget
        rate = encoding(encoder, options.sentences, device, options.rounds)
        print(f"{shape} ({layers} × {dim}): encode, float32: {rate:,.0f} sentences a second", flush=True)
        for kind in (FineTune, Contrastive):
            for batch in options.batches:
                rates = {
                    precision: training(
                        kind, encoder, batch=batch, updates=options.updates, precision=precision, device=device
                    )
                    for precision in TRAINING_PRECISIONS
                }
                told = ", ".join(f"{precision} {rate:,.0f}" for precision, rate in rates.items())
                print(f"{shape}: {kind.__name__.lower()}, batch {batch}: {told} sentence pairs a second", flush=True)
    torch.manual_seed(0)
    x, y = (torch.nn.functional.normalize(torch.randn(options.vectors, 768, device=device), dim=1) for _ in range(2))
    stripe = torch.empty(8192, options.vectors, device=device)

    def multiply() -> None:
        for start in range(0, len(x), 8192):
            part = x[start : start + 8192]
            torch.mm(part, y.T, out=stripe[: len(part)])

    product = middle(multiply, device, options.rounds)
    found = middle(lambda: csls_neighbours(x, y), device, options.rounds)
    print(f"CSLS, {options.vectors:,} × {options.vectors:,} × 768: {found:.2f} s, one product {product:.2f} s")


if __name__ == "__main__":
    main()
