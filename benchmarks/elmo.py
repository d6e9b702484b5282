"""Words per second of ELMo: `encode` over a text against one sentence at a time, in one run.

One sentence at a time is the bare network: no batches, no table of words that came before, and nothing around it. Both
give the same vectors; that is checked.

    python -m benchmarks.elmo [--dim 512 --hidden 4096]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.stand_in import stand_in_text
from calque.encoders.elmo import ElmoEncoder, character_rows, sentence_ends
from calque.nn.elmo import ElmoNetwork, elmo_options
from calque.nn.ragged import Ragged
from calque.text import Sentences


@torch.inference_mode()
def one_by_one(network: ElmoNetwork, sentences: Sentences) -> list[np.ndarray]:
    """The last layer of each sentence, alone."""
    begin, end = np.split(sentence_ends(), 2)
    found = []
    for sentence in sentences:
        rows = np.concatenate([begin, character_rows(sentence.words), end])
        layers = network(network.words(torch.from_numpy(rows)), Ragged([len(rows)]))
        found.append(layers[-1][1:-1].numpy())
    return found


def words_per_second(function: Callable[[Sentences], object], sentences: Sentences) -> float:
    start = time.perf_counter()
    function(sentences)
    return int(sentences.lengths().sum()) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--sentences", type=int, default=1000, help="of one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    torch.manual_seed(0)
    network = ElmoNetwork(elmo_options(dim=args.dim, hidden=args.hidden))
    encoder = ElmoEncoder(network)
    text = stand_in_text(args.sentences * args.rounds)[0].source
    warm = text[:50]
    found = encoder.encode(warm)
    difference = max(float(np.abs(found[k] - rows).max()) for k, rows in enumerate(one_by_one(network, warm)))
    print(f"{encoder}, cells of {args.hidden}; largest difference {difference:.1e}")
    for threads in args.threads:
        torch.set_num_threads(threads)
        rates = []
        for k in range(args.rounds):
            part = text[k * args.sentences : (k + 1) * args.sentences]
            slow = words_per_second(lambda part: one_by_one(network, part), part)
            rates.append((words_per_second(encoder.encode, part), slow))
        fast, slow = np.median(rates, axis=0)
        ratios = np.array([a / b for a, b in rates])
        print(f"{threads} threads: {fast:7.0f} words/s, one sentence at a time {slow:6.0f}: {np.median(ratios):.2f} times "
              f"({ratios.min():.2f} to {ratios.max():.2f}; asked: 3)")  # fmt: skip


if __name__ == "__main__":
    main()
