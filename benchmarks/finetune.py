"""Fine-tuning with Cao's loss against padded loops: tokenise, pad, two passes and the frozen encoder's; batches in the
order of the text, and sorted by length.

    python -m benchmarks.finetune --encoder mini --text TEXT.tsv --langs en de
"""

from __future__ import annotations

import copy

import torch

from benchmarks.shared import batches, both, compare, linked, options_of, read, word_vectors
from calque.alignment.finetune import FineTune

RATE = 5e-4


def padded(encoder, corpus, pairs, size: int, *, by_length: bool) -> None:
    """Train for one epoch: Σ ‖f(s) − f(t)‖² over links and Σ ‖f(t) − f₀(t)‖² over the words of the language that stays."""
    model, frozen, links = copy.deepcopy(encoder.model).train(), encoder.model.eval(), linked(pairs)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9)
    texts = [[sentence.words for sentence in side] for side in (corpus.source, corpus.target)]
    for numbers in batches(texts[0], size, by_length=by_length):
        stays, moves = (list(word_vectors(encoder, model, [side[k] for k in numbers])) for side in texts)
        with torch.no_grad():
            before = list(word_vectors(encoder, frozen, [texts[0][k] for k in numbers]))
        loss = torch.zeros(())
        for place, number in enumerate(numbers):
            for i, j in links.get(number, []):
                if i in stays[place] and j in moves[place]:
                    loss = loss + (moves[place][j] - stays[place][i]).square().sum()
            for i, vector in stays[place].items():
                loss = loss + (vector - before[place][i]).square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def main(arguments: list[str] | None = None) -> None:
    options = options_of(__doc__, pairs=400, batch=16).parse_args(arguments)
    encoder, corpus, pairs = read(options)

    def library() -> None:
        method = FineTune(
            towards=corpus.langs[0], batch=options.batch, learning_rate=RATE, special=False, max_words=None, epochs=1.0
        )
        method.tune(encoder, corpus, pairs)

    title = f"fine-tuning on {len(corpus):,} pairs, {encoder.name}, {options.threads} threads"
    compare(title, len(corpus), library, both(padded, encoder, corpus, pairs, options.batch), options.rounds)


if __name__ == "__main__":
    main()
