"""Training a BiLSTM-CRF tagger on frozen features against a plain loop: one sentence at a time, autograd through the CRF."""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from torch import nn

from calque.annotated import Labels, TaggedText
from calque.distributed import Processes
from calque.nn.tagging import TaggingHead
from calque.tasks.datasets import Answers
from calque.text import Sentences
from calque.training.sources import FrozenSource
from calque.training.supervised import Supervised
from calque.vectors import Embeddings

TAGS = ("O", *(f"{letter}-{kind}" for kind in ("PER", "LOC", "ORG", "MISC") for letter in "BI"))


def made_up(n: int, dim: int, seed: int = 0) -> tuple[Embeddings, TaggedText]:
    """Sentences with lengths as in news text, random vectors and random tags."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(2.4, 0.7, n), 2, 60).astype(int)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = rng.standard_normal((offsets[-1], dim)).astype(np.float32)
    codes = rng.integers(0, len(TAGS), offsets[-1]).astype(np.int32)
    text = Sentences.of([["x"] * length for length in lengths], "en")
    return Embeddings(data, offsets), TaggedText(text, Labels(codes, TAGS))


class Plain(nn.Module):
    """The same tagger from PyTorch's own parts, for one sentence."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.lstm = nn.LSTM(dim, hidden, 2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * hidden, len(TAGS))
        self.moves = nn.Parameter(torch.zeros(len(TAGS), len(TAGS)))
        self.start, self.end = nn.Parameter(torch.zeros(len(TAGS))), nn.Parameter(torch.zeros(len(TAGS)))

    def forward(self, rows: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        """−log p of the tags of a sentence, term by term as the textbook has it."""
        scores = self.out(self.lstm(rows[None])[0])[0]
        alpha, gold = self.start + scores[0], self.start[tags[0]] + scores[0, tags[0]]
        for t in range(1, len(rows)):
            alpha = torch.logsumexp(alpha[:, None] + self.moves, dim=0) + scores[t]
            gold = gold + self.moves[tags[t - 1], tags[t]] + scores[t, tags[t]]
        return torch.logsumexp(alpha + self.end, dim=0) - gold - self.end[tags[-1]]


def plain(embeddings: Embeddings, text: TaggedText, *, hidden: int, batch: int) -> float:
    """Sentences a second of the plain loop."""
    model = Plain(embeddings.dim, hidden)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    tags, n = torch.from_numpy(text.tags.codes.astype(np.int64)), len(text)
    data = torch.from_numpy(np.asarray(embeddings.data))
    started = time.perf_counter()
    for start in range(0, n, batch):
        optimiser.zero_grad()
        for k in range(start, min(start + batch, n)):
            span = slice(int(embeddings.offsets[k]), int(embeddings.offsets[k + 1]))
            (model(data[span], tags[span]) / batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
    return n / (time.perf_counter() - started)


def library(embeddings: Embeddings, text: TaggedText, *, hidden: int, batch: int) -> float:
    """Sentences a second of one epoch in calque."""
    started = time.perf_counter()
    head = TaggingHead(embeddings.dim, TAGS, lstm=(hidden, 2), crf=True, dropout=0.0)
    answers = Answers(np.diff(embeddings.offsets), words={"tags": text.tags.codes})

    def losses(given):
        scores, _ = head(given.rows, given.lengths)
        return head.tag_losses(scores, answers.of_words("tags", given.numbers), given.lengths)

    Supervised(epochs=1, batch=batch).fit(head, FrozenSource(embeddings), losses, processes=Processes())
    return len(text) / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=640)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=128)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    embeddings, text = made_up(options.sentences, options.dim)
    settings = {"hidden": options.hidden, "batch": 32}
    library(embeddings, text, **settings)  # compile
    ratios = []
    for _ in range(options.rounds):
        ours, theirs = library(embeddings, text, **settings), plain(embeddings, text, **settings)
        ratios.append(ours / theirs)
        print(f"{ours:8.0f} sentences/s, plain loop {theirs:6.0f}: {ratios[-1]:.2f} times")
    print(f"tagger training {statistics.median(ratios):.2f} times a plain per-sentence loop (asked: 2)")


if __name__ == "__main__":
    main()
