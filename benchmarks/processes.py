"""Weak scaling: sentence pairs a second of N processes over gloo, each with a core and a batch of its own, against one.

python -m benchmarks.processes                      measures here; alternates 1 and N processes
python -m benchmarks.processes --computed           what 8 cards would do, from bytes and rates
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

_UNTIMED = 4  # updates in which memory is taken for the first time


def _trained(options: argparse.Namespace) -> None:
    """One process's part: prints what the first saw of the updates."""
    import torch

    from benchmarks.stand_in import stand_in_encoder, stand_in_text
    from calque.alignment.contrastive import Contrastive
    from calque.alignment.finetune import FineTune
    from calque.distributed import Processes

    torch.set_num_threads(1)
    started: list[float] = []
    waited: list[float] = []

    def timed(name: str) -> None:
        usual = getattr(Processes, name)

        def wrapped(self: Processes, *args: Any) -> Any:
            begun = time.perf_counter()
            result = usual(self, *args)
            waited.append(time.perf_counter() - begun)
            return result

        setattr(Processes, name, wrapped)

    for name in ("sum_gradients", "gather_rows", "sum_numbers", "most"):
        timed(name)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    kind = {"contrastive": Contrastive, "finetune": FineTune}[options.method]
    tuner = kind(
        towards="en", batch=options.batch * world, learning_rate=1e-4, epochs=1.0, max_words=None,
        reference="recomputed" if kind is FineTune else "auto",
    )  # fmt: skip
    usual = tuner.loss

    def loss(groups: Any, processes: Processes, **more: Any) -> Any:
        started.append(time.perf_counter())
        if len(started) == _UNTIMED:
            waited.clear()
        return usual(groups, processes, **more)

    tuner.loss = loss  # type: ignore[method-assign]
    corpus, pairs = stand_in_text(options.updates * options.batch * world)
    tuner.tune(stand_in_encoder(layers=options.layers, dim=options.dim), corpus, pairs)
    seconds = started[-1] - started[_UNTIMED - 1]
    updates = len(started) - _UNTIMED
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps({"rate": updates * options.batch * world / seconds, "waiting": sum(waited) / seconds}))


def _rate(world: int, arguments: list[str], pinned: bool) -> dict[str, float]:
    """Start a group, and what its first process measured."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    cores = sorted(os.sched_getaffinity(0)) if pinned and hasattr(os, "sched_getaffinity") else []
    group = []
    for rank in range(world):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        if world > 1:
            environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
                            "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.processes", "--worker", *arguments]
        if len(cores) >= world:  # a core for each, as a graphics card would be
            command = ["taskset", "-c", str(cores[rank]), *command]
        group.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    said = [process.communicate()[0] for process in group]
    if any(process.returncode for process in group):
        sys.exit(f"a process of {world} failed")
    return json.loads(said[0].strip().splitlines()[-1])


def measured(options: argparse.Namespace, arguments: list[str]) -> None:
    """Groups by turns, and the median of the ratios."""
    ratios, rates, waiting = [], [], []
    for _ in range(options.rounds):
        one, several = (_rate(world, arguments, options.pinned) for world in (1, options.processes))
        ratios.append(several["rate"] / one["rate"])
        rates.append((one["rate"], several["rate"]))
        waiting.append(several["waiting"])
    one, several = (statistics.median(column) for column in zip(*rates, strict=True))
    print(
        f"{options.method}, {options.layers} × {options.dim}, {options.batch} sentence pairs for each process and update: "
        f"{options.processes} processes do {statistics.median(ratios):.2f} times the sentence pairs a second of one "
        f"({', '.join(f'{ratio:.2f}' for ratio in ratios)}; {several:.0f} and {one:.0f}), "
        f"{100 * statistics.median(waiting):.0f}% of the time in communication and waiting"
    )


@dataclass(frozen=True)
class Model:
    """Sizes of an encoder, in numbers: all weights of its layers, and rows × width of its table of subwords."""

    name: str
    layers: float
    rows: int
    width: int


MODELS = (
    Model("BERT-base, multilingual", 86e6, 119_547, 768),
    Model("XLM-R base", 86e6, 250_002, 768),
    Model("XLM-R large", 303e6, 250_002, 1024),
)
PRODUCTS = (
    250e12  # a second: what a card of the H100's kind does in bfloat16 on batches like these, a quarter of its peak
)
MEMORY = 2.5e12  # bytes a second
LINKS = {
    "NVLink": 350e9,
    "PCIe": 20e9,
    "100 Gbit": 10e9,
}  # bytes a second of an all-reduce, as nccl-tests' "busbw" has it
SUBWORDS = 60  # of a sentence pair


def computed(cards: int = 8) -> list[dict[str, Any]]:
    """For each model and batch of a card: seconds of its arithmetic and of its communication, and what is left of `cards`.

    A layer's weight costs 6 operations a subword, there and back. Adam reads weight, gradient and two moments, and writes
    three of them: 28 bytes. An all-reduce of S bytes moves 2·(n − 1)/n·S through each card. Travel the gradients of the
    layers in float32, those rows of the table that are in the update (counted as if all subwords differed), and the linked
    words' vectors. Nothing overlaps.
    """
    lines = []
    for model in MODELS:
        for batch in (32, 128, 512):
            subwords = batch * SUBWORDS
            work = 6 * model.layers * subwords / PRODUCTS
            work += 28 * (model.layers + model.rows * model.width) / MEMORY
            rows = min(model.rows, cards * subwords)
            sent = 4 * (model.layers + rows * model.width) + model.rows
            sent += 4 * cards * batch * 20 * 2 * model.width / 2  # an all-gather is half of an all-reduce
            moved = 2 * (cards - 1) / cards * sent
            line: dict[str, Any] = {"model": model.name, "batch": batch, "work": work, "sent": sent}
            lines.append(line | {link: work / (work + moved / rate) for link, rate in LINKS.items()})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--method", default="contrastive", choices=["contrastive", "finetune"])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32, help="sentence pairs for each process and update")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-pinning", dest="pinned", action="store_false", help="leave the cores to the system")
    parser.add_argument("--computed", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.computed:
        print(f"| encoder | pairs a card | ms of arithmetic | MB sent | {' | '.join(LINKS)} |")
        for line in computed():
            shares = " | ".join(f"{8 * line[link]:.1f}" for link in LINKS)
            print(
                f"| {line['model']} | {line['batch']} | {1e3 * line['work']:.1f} | {line['sent'] / 1e6:.0f} | {shares} |"
            )
    elif options.worker:
        _trained(options)
    else:
        names = ("method", "layers", "dim", "batch", "updates")
        measured(options, [part for name in names for part in (f"--{name}", str(getattr(options, name)))])


if __name__ == "__main__":
    main()
