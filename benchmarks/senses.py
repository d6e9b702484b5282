"""What senses cost: an update with S senses against a plain one of the same sizes: `python -m benchmarks.senses`.

Both train in turns in one process, on text of the sizes of `calque pretrain --preset small`. `--memory` measures the largest
resident memory instead, of each in a process of its own, against the formula of docs/results.md.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.stand_in import stand_in_text
from calque.pretraining.base import Prediction
from calque.pretraining.bidirectional import BiLanguageModel, WordPrediction
from calque.pretraining.masked import MaskedLanguageModel, MaskedPrediction, train_tokenizer
from calque.pretraining.senses import Senses
from calque.text import Sentences


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=["elmo", "bert"], nargs="+", default=["elmo", "bert"])
    parser.add_argument("--senses", type=int, default=5)
    parser.add_argument("--text", help="one sentence a line, words between spaces; by default one is made up")
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4, help="of the BERT")
    parser.add_argument("--vocabulary", type=int, default=16_000)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--only", type=int, help="train the kind of this number once, and print its memory in bytes")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    text = _text(args.text)
    for model in args.model:
        if args.only is not None:
            print(*_memory(model, text, args))
        elif args.memory:
            _compare_memory(model, args)
        else:
            _compare(model, text, args)


def _text(path: str | None) -> Sentences:
    if path is None:
        return stand_in_text(20_000)[0].source
    with open(path, encoding="utf-8") as lines:
        return Sentences.of([line.split() for line in lines], "en")


def _kinds(args: argparse.Namespace) -> dict[str, Senses | None]:
    common: dict[str, Any] = {"senses": args.senses, "warmup": 1, "start": "copied", "below": 0.0}
    return {
        "plain": None,
        f"{args.senses} senses of the words seen 100 times for each": Senses(occurrences=100, **common),
        f"{args.senses} senses of every word": Senses(occurrences=0, **common),
    }


def _memory(model: str, text: Sentences, args: argparse.Namespace) -> tuple[int, int]:
    """Largest resident memory of a training, and what the formula gives for its tables; in bytes."""
    senses = list(_kinds(args).values())[args.only]
    formula, make = 0, Senses.tables

    def counted(self: Senses, counts: np.ndarray, dim: int, number: int = 1) -> Any:
        nonlocal formula
        tables = make(self, counts, dim, number)
        formula = sum(20 * dim * len(table) + 4 * dim * self.queue for table in tables)
        return tables

    Senses.tables = counted  # type: ignore[method-assign]
    (_elmo(text, args) if model == "elmo" else _bert(text, args))(senses)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, formula


def _compare_memory(model: str, args: argparse.Namespace) -> None:
    given = [
        f"--{name}={getattr(args, name)}" for name in ("senses", "updates", "threads", "dim", "layers", "vocabulary")
    ]
    given += [] if args.text is None else [f"--text={args.text}"]
    plain = 0
    for number, name in enumerate(_kinds(args)):
        command = [sys.executable, "-m", "benchmarks.senses", *given, f"--model={model}", f"--only={number}"]
        peak, formula = map(int, subprocess.check_output(command, text=True).split())
        plain = plain or peak
        print(
            f"{model}: {peak / 2**20:.0f} MiB, {name}; {(peak - plain) / 2**20:.0f} more, formula {formula / 2**20:.0f}",
            flush=True,
        )


def _compare(model: str, text: Sentences, args: argparse.Namespace) -> None:
    kinds = _kinds(args)
    train = _elmo(text, args) if model == "elmo" else _bert(text, args)
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(args.rounds):
        for name, senses in kinds.items():
            taken[name].append(_seconds(train, senses, args.updates))
    print(f"{model}: {np.median(taken['plain']):.3f} s an update, plain, {args.threads} threads", flush=True)
    for name, seconds in taken.items():
        ratios = np.array(seconds) / np.array(taken["plain"])
        print(f"  {np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f}) times as long: {name}", flush=True)


def _elmo(text: Sentences, args: argparse.Namespace) -> Callable[[Senses | None], Any]:
    def train(senses: Senses | None) -> Any:
        settings = {"dim": args.dim, "hidden": 4 * args.dim, "tables": 2, "negatives": 4096}
        return BiLanguageModel(
            updates=args.updates, senses=senses, vocabulary=args.vocabulary, min_count=1, **settings
        ).train({"en": text})

    return train


def _bert(text: Sentences, args: argparse.Namespace) -> Callable[[Senses | None], Any]:
    tokenizer = train_tokenizer({"en": text}, size=args.vocabulary)

    def train(senses: Senses | None) -> Any:
        settings = {"dim": args.dim, "layers": args.layers, "length": 64, "positions": 64}
        return MaskedLanguageModel(updates=args.updates, senses=senses, **settings).train({"en": text}, tokenizer)

    return train


def _seconds(train: Callable[[Senses | None], Any], senses: Senses | None, updates: int) -> float:
    """Median time from the beginning of an update to that of the next, without the first few."""
    begun: list[float] = []
    classes: tuple[type[Prediction], ...] = (WordPrediction, MaskedPrediction)
    before = [kind.backward for kind in classes]

    def timed(original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(self: Any, update: Any) -> Any:
            begun.append(time.perf_counter())
            return original(self, update)

        return backward

    for kind, original in zip(classes, before, strict=True):
        kind.backward = timed(original)  # type: ignore[method-assign]
    try:
        train(senses)
    finally:
        for kind, original in zip(classes, before, strict=True):
            kind.backward = original  # type: ignore[method-assign]
    return float(np.median(np.diff(begun)[3:]))


if __name__ == "__main__":
    main()
