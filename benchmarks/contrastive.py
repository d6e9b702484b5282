"""Contrastive alignment against a straightforward loop: tokenise, pad, two passes, InfoNCE as published, Adam.

Both see the same sentence pairs in the same updates with the same rates, and the losses of both are compared.

    python -m benchmarks.contrastive --encoder mini --text TEXT.tsv --langs en de
    python -m benchmarks.contrastive --layers 12 --dim 768 --pairs 200 --precision bfloat16
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time

import numpy as np
import torch

from benchmarks.finetune import last_subwords
from benchmarks.stand_in import scaling, stand_in_encoder, stand_in_text
from calque.alignment.contrastive import Contrastive
from calque.encoders import load_encoder
from calque.encoders.numerics import TrainingPrecision
from calque.pairs import WordPairs

TEMPERATURE, RATE = 0.05, 5e-4


def tuner(towards: str, batch: int, precision: TrainingPrecision) -> Contrastive:
    """The loss as published: equal pairs are negatives, and nothing is held."""
    return Contrastive(
        towards=towards, batch=batch, learning_rate=RATE, temperature=TEMPERATURE, same="negative", keep=0.0, max_words=None,
        epochs=1.0, precision=precision,
    )  # fmt: skip


def straightforward(encoder, corpus, pairs, like: Contrastive) -> list[float]:
    """The losses of one epoch of the plain loop."""
    model, tokenizer = copy.deepcopy(encoder.model).train(), encoder.tokenizer
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE, betas=like.betas, eps=like.epsilon)
    links: dict[int, list[tuple[int, int]]] = {}
    for k, i, j in zip(pairs.sentence.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True):
        links.setdefault(k, []).append((i, j))
    options = {"is_split_into_words": True, "padding": True, "truncation": True, "return_tensors": "pt"}
    options["max_length"] = encoder.max_length
    updates = like.plan(like.text(encoder, [corpus], [pairs]), like.seed).epoch(0)
    losses = []
    for step, (numbers,) in enumerate(updates):
        chosen = [corpus[int(k)] for k in numbers]
        sides = [tokenizer([list(pair[side].words) for pair in chosen], **options) for side in (0, 1)]
        states = [model(**side, output_hidden_states=True).hidden_states[encoder.layer] for side in sides]
        rows: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for place, number in enumerate(numbers.tolist()):
            found = [last_subwords(states[side], sides[side], place) for side in (0, 1)]
            for i, j in links.get(number, []):
                if i in found[0] and j in found[1]:
                    rows[0].append(found[0][i])
                    rows[1].append(found[1][j])
        x, y = (torch.nn.functional.normalize(torch.stack(side), dim=1) for side in rows)
        scores, own = x @ y.T / TEMPERATURE, torch.arange(len(x))
        cross_entropy = torch.nn.functional.cross_entropy
        loss = 0.5 * (cross_entropy(scores, own) + cross_entropy(scores.T, own))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), like.clip or float("inf"))
        for group in optimiser.param_groups:
            group["lr"] = like.schedule.rate(step, len(updates))
        optimiser.step()
        losses.append(float(loss))
    return losses


def made(options: argparse.Namespace):
    """Encoder, corpus and links; every sentence pair has a link."""
    encoder = (
        load_encoder(options.encoder) if options.encoder else stand_in_encoder(layers=options.layers, dim=options.dim)
    )
    if not options.text:
        return encoder, *stand_in_text(options.pairs, langs=tuple(options.langs))
    from calque.corpora import read_parallel
    from calque.wordalign import align_words

    corpus = read_parallel(options.text, langs=tuple(options.langs), limit=options.pairs)
    pairs = align_words(corpus, model="fast-align").one_to_one()
    kept = np.unique(pairs.sentence)
    numbers = np.searchsorted(kept, pairs.sentence)
    return encoder, corpus.take(kept), WordPairs(numbers, pairs.source, pairs.target, n_sentences=len(kept))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--encoder", help="folder or hub name; default: a random one")
    parser.add_argument("--layers", type=int, default=6, help="of the random encoder; 12 for the size of BERT-base")
    parser.add_argument("--dim", type=int, default=128, help="of the random encoder; 768 for the size of BERT-base")
    parser.add_argument("--text", help="parallel text; default: made up")
    parser.add_argument("--langs", nargs=2, default=("en", "de"))
    parser.add_argument("--pairs", type=int, default=800)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="float32", help="of calque: float32, medium or bfloat16")
    parser.add_argument("--scaling", action="store_true", help="calque alone: --threads threads against one")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    encoder, corpus, pairs = made(options)

    def library() -> list[float]:
        method = tuner(corpus.langs[0], options.batch, options.precision)
        method.tune(encoder, corpus, pairs)
        return [line["loss"] for line in method.history]

    if options.scaling:
        return scaling(library, options.threads, options.rounds)
    plain = tuner(corpus.langs[0], options.batch, options.precision)
    library()  # compiles, and prepares products
    slow, fast, clocks = [], [], []
    for _ in range(options.rounds):
        for work, seconds in ((lambda: straightforward(encoder, corpus, pairs, plain), slow), (library, fast)):
            start, clock = time.process_time(), time.perf_counter()
            losses = work()
            seconds.append((time.perf_counter() - clock, time.process_time() - start, losses))
        clocks.append([slow[-1][k] / fast[-1][k] for k in (0, 1)])
    by_clock, by_processor = (statistics.median(each) for each in zip(*clocks, strict=True))
    apart = max(abs(a - b) / abs(a) for a, b in zip(slow[0][2], fast[0][2], strict=True))
    rates = [len(corpus) / statistics.median(each[0] for each in seconds) for seconds in (fast, slow)]
    print(
        f"contrastive alignment, {options.precision}, batch {options.batch}, {options.threads} threads: {by_clock:.2f} times "
        f"the sentence pairs a second of a straightforward loop ({by_processor:.2f} in processor time; {rates[0]:.0f} and "
        f"{rates[1]:.0f} pairs a second, medians of {options.rounds} turns; losses of an update at most {apart:.1e} apart)"
    )


if __name__ == "__main__":
    main()
