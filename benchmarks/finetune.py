"""Fine-tuning with Cao's loss against a straightforward loop: tokenise, pad, two passes, the reference anew."""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from typing import Any

import torch

from benchmarks.stand_in import scaling, stand_in_encoder, stand_in_text
from calque.alignment.finetune import FineTune
from calque.encoders import load_encoder


def last_subwords(states, encoded, sentence: int) -> dict[int, torch.Tensor]:
    """Vector of each word's last subword, as published code collects them."""
    return {word: states[sentence, k] for k, word in enumerate(encoded.word_ids(sentence)) if word is not None}


def straightforward(encoder, corpus, pairs, *, batch: int, n: int, learning_rate: float) -> float:
    """Sentence pairs a second of the plain loop over the first `n` pairs."""
    model, frozen, tokenizer = copy.deepcopy(encoder.model).train(), encoder.model.eval(), encoder.tokenizer
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), eps=1e-9)
    links: dict[int, list[tuple[int, int]]] = {}
    for k, i, j in zip(pairs.sentence.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True):
        links.setdefault(k, []).append((i, j))
    options = {"is_split_into_words": True, "padding": True, "truncation": True, "return_tensors": "pt"}
    started = time.perf_counter()
    for start in range(0, n, batch):
        chosen = [corpus[k] for k in range(start, min(start + batch, n))]
        target = tokenizer([list(pair[0].words) for pair in chosen], **options)  # English stays
        source = tokenizer([list(pair[1].words) for pair in chosen], **options)
        fs = model(**source).last_hidden_state
        ft = model(**target).last_hidden_state
        with torch.no_grad():
            f0 = frozen(**target).last_hidden_state
        loss = torch.zeros(())
        for b in range(len(chosen)):
            s, t, r = last_subwords(fs, source, b), last_subwords(ft, target, b), last_subwords(f0, target, b)
            for i, j in links.get(start + b, []):
                if i in t and j in s:
                    loss = loss + (s[j] - t[i]).square().sum()
            for i in t:
                loss = loss + (t[i] - r[i]).square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return n / (time.perf_counter() - started)


def library(encoder, corpus, pairs, *, batch: int, n: int, learning_rate: float, precision: Any = "float32") -> float:
    """Sentence pairs a second of calque over the same pairs, preparation included."""
    started = time.perf_counter()
    tuner = FineTune(
        towards=corpus.langs[0], batch=batch, learning_rate=learning_rate, special=False, max_words=None,
        precision=precision,
    )  # fmt: skip
    tuner.tune(encoder, corpus[:n], pairs.slice(0, n))
    return n / (time.perf_counter() - started)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", help="folder or hub name; default: a random one of 6 layers of 128")
    parser.add_argument("--text", help="parallel text; default: made up")
    parser.add_argument("--langs", nargs=2, default=("en", "de"))
    parser.add_argument("--layers", type=int, default=6, help="of the random encoder; 12 for the size of BERT-base")
    parser.add_argument("--dim", type=int, default=128, help="of the random encoder; 768 for the size of BERT-base")
    parser.add_argument("--precision", default="float32", help="of calque: float32, medium or bfloat16")
    parser.add_argument("--scaling", action="store_true", help="calque alone: --threads threads against one")
    parser.add_argument("--pairs", type=int, default=800)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    encoder = (
        load_encoder(options.encoder) if options.encoder else stand_in_encoder(layers=options.layers, dim=options.dim)
    )
    if options.text:
        from calque.corpora import read_parallel
        from calque.wordalign import align_words

        corpus = read_parallel(options.text, langs=tuple(options.langs), limit=options.pairs, on_error="blank")
        pairs = align_words(corpus, model="fast-align").one_to_one()
    else:
        corpus, pairs = stand_in_text(options.pairs, langs=tuple(options.langs))
    settings = {"batch": options.batch, "learning_rate": 5e-4}
    own = {**settings, "precision": options.precision}
    if options.scaling:
        return scaling(lambda: library(encoder, corpus, pairs, n=len(corpus), **own), options.threads, options.rounds)
    library(encoder, corpus, pairs, n=min(100, len(corpus)), **own)
    slow, fast = [], []
    for _ in range(options.rounds):
        slow.append(straightforward(encoder, corpus, pairs, n=len(corpus), **settings))
        fast.append(library(encoder, corpus, pairs, n=len(corpus), **own))
    ratio = statistics.median(f / s for f, s in zip(fast, slow, strict=True))
    print(
        f"fine-tuning, {options.precision}, batch {options.batch}, {options.threads} threads: {ratio:.2f} times the sentence "
        f"pairs a second of a straightforward loop (at least 3 asked; {statistics.median(fast):.0f} and "
        f"{statistics.median(slow):.0f}, medians of {options.rounds} turns)"
    )


if __name__ == "__main__":
    main()
