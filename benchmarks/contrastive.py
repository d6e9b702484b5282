"""Contrastive alignment against padded loops: tokenise, pad, two passes, InfoNCE as published, Adam; batches in the order
of the text, and sorted by length.

    python -m benchmarks.contrastive --encoder mini --text TEXT.tsv --langs en de
    python -m benchmarks.contrastive --layers 2 --dim 768 --pairs 200
"""

from __future__ import annotations

import copy

import torch
from torch.nn.functional import cross_entropy, normalize

from benchmarks.shared import batches, both, compare, linked, options_of, read, word_vectors
from calque.alignment.contrastive import Contrastive

TEMPERATURE, RATE = 0.05, 5e-4


def padded(encoder, corpus, pairs, size: int, *, by_length: bool) -> list[float]:
    """Train for one epoch; return the loss of each update."""
    model, links, losses = copy.deepcopy(encoder.model).train(), linked(pairs), []
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    texts = [[sentence.words for sentence in side] for side in (corpus.source, corpus.target)]
    for numbers in batches(texts[0], size, by_length=by_length):
        source, target = (list(word_vectors(encoder, model, [side[k] for k in numbers])) for side in texts)
        rows: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for place, number in enumerate(numbers):
            for i, j in links.get(number, []):
                if i in source[place] and j in target[place]:
                    rows[0].append(source[place][i])
                    rows[1].append(target[place][j])
        x, y = (normalize(torch.stack(side), dim=1) for side in rows)
        scores, own = x @ y.T / TEMPERATURE, torch.arange(len(x))
        loss = 0.5 * (cross_entropy(scores, own) + cross_entropy(scores.T, own))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def main(arguments: list[str] | None = None) -> None:
    options = options_of(__doc__, pairs=400, batch=32).parse_args(arguments)
    encoder, corpus, pairs = read(options)

    def library() -> None:  # the loss as published: equal pairs are negatives, and nothing is held
        method = Contrastive(
            towards=corpus.langs[0], batch=options.batch, learning_rate=RATE, temperature=TEMPERATURE, same_share=0.0,
            keep=0.0, max_words=None, epochs=1.0,
        )  # fmt: skip
        method.tune(encoder, corpus, pairs)

    title = f"contrastive alignment of {len(corpus):,} pairs, {encoder.name}, {options.threads} threads"
    compare(title, len(corpus), library, both(padded, encoder, corpus, pairs, options.batch), options.rounds)


if __name__ == "__main__":
    main()
