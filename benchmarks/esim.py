"""One epoch of ESIM on frozen rows against the same model from PyTorch's own parts, padded: `nn.LSTM` over packed
sequences, `bmm` and masks; sorted by nothing, as batches come."""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from calque.nn.esim import ESIM

LABELS = 3


def made_up(pairs: int, words: float, dim: int, seed: int = 0) -> tuple[list[Tensor], Tensor]:
    """Texts with random vectors, `words` of them on average with lengths as in news text, first all first ones of the
    pairs and then all second ones; and random labels."""
    rng = np.random.default_rng(seed)
    spread = 0.5
    lengths = np.clip(rng.lognormal(np.log(words) - spread**2 / 2, spread, 2 * pairs), 2, 100).round().astype(int)
    texts = [torch.from_numpy(rng.standard_normal((n, dim)).astype(np.float32)) for n in lengths]
    return texts, torch.from_numpy(rng.integers(LABELS, size=pairs))


class Padded(nn.Module):
    """The same model as one writes it with PyTorch's own parts."""

    def __init__(self, dim: int, hidden: int, dropout: float):
        super().__init__()
        self.encoding = nn.LSTM(dim, hidden, batch_first=True, bidirectional=True)
        self.projection = nn.Sequential(nn.Linear(8 * hidden, hidden), nn.ReLU(), nn.Dropout(dropout))
        self.composition = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(8 * hidden, hidden),
            nn.Tanh(),
            nn.Dropout(dropout),
            nn.Linear(hidden, LABELS),
        )

    def forward(self, first: list[Tensor], second: list[Tensor]) -> Tensor:
        lengths = [torch.tensor([len(text) for text in texts]) for texts in (first, second)]
        rows = [self.dropout(pad_sequence(texts, batch_first=True)) for texts in (first, second)]
        a, b = (_read(self.encoding, x, n) for x, n in zip(rows, lengths, strict=True))
        no_a, no_b = (torch.arange(x.shape[1]) >= n[:, None] for x, n in zip((a, b), lengths, strict=True))
        scores = torch.bmm(a, b.mT)
        a_aligned = torch.bmm(scores.masked_fill(no_b[:, None], -torch.inf).softmax(2), b)
        b_aligned = torch.bmm(scores.mT.masked_fill(no_a[:, None], -torch.inf).softmax(2), a)
        texts = []
        for x, aligned, n, none in ((a, a_aligned, lengths[0], no_a), (b, b_aligned, lengths[1], no_b)):
            compared = self.projection(torch.cat([x, aligned, x - aligned, x * aligned], dim=2))
            states = _read(self.composition, compared, n)  # zero behind the end
            texts += [states.sum(1) / n[:, None], states.masked_fill(none[:, :, None], -torch.inf).amax(1)]
        return self.dense(torch.cat(texts, dim=1))


def _read(lstm: nn.LSTM, x: Tensor, lengths: Tensor) -> Tensor:
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(packed)[0], batch_first=True)[0]


def copied(esim: ESIM, dropout: float) -> Padded:
    """The padded model with the same weights."""
    lstm: nn.LSTM = esim.encoding.layers[0]  # type: ignore[assignment]
    plain = Padded(lstm.input_size, lstm.hidden_size, dropout)
    plain.encoding.load_state_dict(lstm.state_dict())
    plain.composition.load_state_dict(esim.composition.layers[0].state_dict())
    plain.projection[0].load_state_dict(esim.projection.state_dict())
    plain.dense.load_state_dict(esim.dense.state_dict())
    return plain


def epoch(model: nn.Module, texts: list[Tensor], labels: Tensor, *, batch: int) -> tuple[float, float]:
    """Pairs a second over one epoch of training, and the mean loss."""
    optimiser = torch.optim.Adam(model.parameters(), lr=4e-4)
    n, total, started = len(labels), 0.0, time.perf_counter()
    for start in range(0, n, batch):
        right = labels[start : start + batch]
        first, second = texts[start : min(start + batch, n)], texts[n + start : n + min(start + batch, n)]
        if isinstance(model, ESIM):
            lengths = torch.tensor([len(text) for text in (*first, *second)])
            scores = model(torch.cat([*first, *second]), lengths)
        else:
            scores = model(first, second)
        loss = nn.functional.cross_entropy(scores, right)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()
        total += float(loss.detach()) * len(right)
    return n / (time.perf_counter() - started), total / n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--words", type=float, default=20)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    texts, labels = made_up(options.pairs, options.words, options.dim)
    epoch(ESIM(options.dim, LABELS, hidden=8, dropout=0.0), texts[:4], labels[:2], batch=2)  # compile
    ratios = []
    for turn in range(options.rounds):
        torch.manual_seed(turn)
        esim = ESIM(options.dim, LABELS, hidden=options.hidden, dropout=options.dropout)
        plain = copied(esim, options.dropout)
        (ours, loss), (theirs, their_loss) = (
            epoch(model, texts, labels, batch=options.batch) for model in (esim, plain)
        )
        ratios.append(ours / theirs)
        print(
            f"{ours:6.0f} pairs/s, padded {theirs:6.0f}: {ratios[-1]:.2f} times (mean loss {loss:.4f} and {their_loss:.4f})"
        )
    print(f"an epoch of ESIM {statistics.median(ratios):.2f} times as fast as padded PyTorch")


if __name__ == "__main__":
    main()
