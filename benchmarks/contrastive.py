"""Compare the speed of contrastive alignment with that of a plain training loop over batches in text order or sorted by length.
The loop tokenises and pads each batch, runs two forward passes, computes the published InfoNCE loss and applies an Adam update.

    python -m benchmarks.contrastive --encoder mini --text TEXT.tsv --langs en de
    python -m benchmarks.contrastive --layers 12 --dim 768 --pairs 96 --lora 8
    python -m benchmarks.contrastive --encoder google/gemma-3-270m --layer 11 --lora 8 --pairs 96 --only calque

With --only, either calque or the plain loop runs once, and the peak memory of the process is printed.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy, normalize

from benchmarks.shared import (
    batches,
    both,
    compare,
    linked,
    options_of,
    peak_mib,
    read,
    timed,
    word_vectors,
)
from calque.alignment.contrastive import Contrastive
from calque.encoders import load_encoder
from calque.pairs import WordPairs
from calque.text import ParallelCorpus

TEMPERATURE, RATE = 0.05, 5e-4


@dataclass(frozen=True, kw_only=True)
class AnyLength(Contrastive):
    """Contrastive alignment that also uses long sentences, as the loop with PEFT does."""

    max_words = None


def padded(encoder, corpus, pairs, size: int, lora: int | None, *, by_length: bool) -> list[float]:
    """Train for one epoch with a plain loop over padded batches, and return the loss of each
    update.
    """
    model, links, losses = copy.deepcopy(encoder.model).train(), linked(pairs), []
    if lora:
        import peft

        model = peft.get_peft_model(
            model, peft.LoraConfig(r=lora, lora_alpha=lora, target_modules="all-linear")
        )
    optimiser = torch.optim.Adam(
        [weight for weight in model.parameters() if weight.requires_grad], lr=RATE
    )
    texts = [[sentence.words for sentence in side] for side in (corpus.source, corpus.target)]
    for numbers in batches(texts[0], size, by_length=by_length):
        source, target = (
            list(word_vectors(encoder, model, [side[k] for k in numbers])) for side in texts
        )
        rows: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for place, number in enumerate(numbers):
            for i, j in links.get(number, []):
                if i in source[place] and j in target[place]:
                    rows[0].append(source[place][i])
                    rows[1].append(target[place][j])
        x, y = (normalize(torch.stack(side), dim=1) for side in rows)
        scores, own = x @ y.T / TEMPERATURE, torch.arange(len(x), device=x.device)
        loss = 0.5 * (cross_entropy(scores, own) + cross_entropy(scores.T, own))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def main(arguments: list[str] | None = None) -> None:
    parser = options_of(__doc__, pairs=400, batch=32)
    parser.add_argument(
        "--lora", type=int, metavar="RANK", help="rank of LoRA adapters; default: train all weights"
    )
    parser.add_argument(
        "--only",
        choices=("calque", "loop"),
        help="run only this method, once, and print peak memory",
    )
    options = parser.parse_args(arguments)
    encoder, corpus, pairs = read(options)
    with tempfile.TemporaryDirectory() as folder:
        if (
            options.lora and not options.encoder
        ):  # adapters can be added only to weights that are stored in a folder
            encoder.save(Path(folder) / "random")
            encoder = load_encoder(Path(folder) / "random", device=options.device)
        measure(options, encoder, corpus, pairs)


def measure(
    options: argparse.Namespace, encoder: Any, corpus: ParallelCorpus, pairs: WordPairs
) -> None:
    """Run the methods that `options` selects, and print their times."""

    def library() -> (
        None
    ):  # the published loss: repeated pairs are negatives, and similarities are not distilled
        method = AnyLength(
            towards=corpus.langs[0],
            batch=options.batch,
            learning_rate=RATE,
            temperature=TEMPERATURE,
            same_share=0.0,
            similarity_distillation=0.0,
            epochs=1.0,
            lora=options.lora,
            standardize=False,
        )
        method.align(encoder, corpus, pairs)  # the loop does not standardise the vectors either

    title = (
        f"contrastive alignment of {len(corpus):,} pairs, {encoder.name}, {options.threads} threads"
    )
    given = encoder, corpus, pairs, options.batch, options.lora
    if options.only:
        work = library if options.only == "calque" else lambda: padded(*given, by_length=False)
        loaded, (wall, processor) = peak_mib(options.device), timed(work)
        print(
            f"{title}: {wall:.1f} s, {processor:.1f} s of processor time; peak "
            f"{peak_mib(options.device):,.0f} MiB, {loaded:,.0f} MiB after loading"
        )
    else:
        compare(title, len(corpus), library, both(padded, *given), options.rounds)


if __name__ == "__main__":
    main()
