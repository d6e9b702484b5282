"""Predicting words out of a large vocabulary: softmax over all of them, or over a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.errors import SettingError
from calque.nn.cross_entropy import cross_entropy

_LOGITS = 4_000_000  # numbers held at once where nothing is learnt


@dataclass(frozen=True)
class Negatives:
    """Words drawn for the words of an update to be told from.

    Attributes:
        words: int64 `[n]`, sorted, each once.
        tries: draws until there were n different ones; None where they are all words there are.
    """

    words: np.ndarray
    tries: int | None


class LogUniform:
    """Draws words by their rank k in the order of frequency, which by Zipf's law is about their frequency:

        p(k) = log((k + 2) / (k + 1)) / log(n + 1),    k = 0, …, n − 1

    Args:
        n: words.
    """

    def __init__(self, n: int):
        self.n = n

    def draw(self, count: int, rng: np.random.Generator) -> Negatives:
        """Different words, drawn until there are `count` of them.

        Raises:
            SettingError: there are fewer.
        """
        if not 0 < count <= self.n:
            raise SettingError(f"{count} different words out of {self.n}")
        if count == self.n:
            return Negatives(np.arange(self.n), None)
        drawn = np.zeros(0, dtype=np.int64)
        while True:
            drawn = np.concatenate([drawn, self.many(2 * count, rng)])
            words, first = np.unique(drawn, return_index=True)
            if len(words) >= count:
                last = np.partition(first, count - 1)[count - 1]
                return Negatives(words[first <= last], int(last) + 1)

    def log_expected(self, words: np.ndarray, tries: int | None) -> np.ndarray:
        """Logarithm of how often a word is expected among the negatives, 1 − (1 − p)^tries, float64 `[n]`."""
        if tries is None:
            return np.zeros(len(words))
        return np.log(-np.expm1(tries * np.log1p(-self.probability(words))))

    def many(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Words one by one, of which some may be equal, int64 `[count]`."""
        new = np.exp(rng.random(count) * np.log(self.n + 1)).astype(np.int64) - 1
        return np.clip(new, 0, self.n - 1)

    def probability(self, words: np.ndarray) -> np.ndarray:
        """p of some words."""
        return np.log1p(1 / (words + 1.0)) / np.log(self.n + 1)


class WordSoftmax(nn.Module):
    """p(word | state) ∝ exp(w_word · state + b_word).

    Args:
        size: words.
        dim: of a state.
        tables: 1 for a table that both directions share, 2 for one of each.
        negatives: words drawn for each direction of an update; all of them are taken, and nothing is drawn, where twice as
            many are all there are.
        correction: subtract log Q from each score, Q the expected number of times that the word is drawn, so that the
            scores learn log p and not log p / Q (Jean et al. 2015, §3; `tf.nn.sampled_softmax_loss`).
    """

    def __init__(self, size: int, dim: int, *, tables: int = 1, negatives: int = 8192, correction: bool = True):
        super().__init__()
        if tables not in (1, 2) or negatives < 1:
            raise SettingError(f"tables is 1 or 2 and negatives at least 1, got {tables} and {negatives}")
        self.weight = nn.ParameterList(torch.randn(size, dim) / dim**0.5 for _ in range(tables))
        self.bias = nn.ParameterList(torch.zeros(size) for _ in range(tables))
        self.sampler, self.correction = LogUniform(size), correction
        self.negatives = negatives if 2 * negatives < size else None

    def draw(self, rng: np.random.Generator) -> list[Negatives | None]:
        """Negatives of both directions, or None for all words."""
        return [None if self.negatives is None else self.sampler.draw(self.negatives, rng) for _ in range(2)]

    def _table(self, side: int) -> tuple[Tensor, Tensor]:
        return self.weight[side % len(self.weight)], self.bias[side % len(self.bias)]

    def loss(self, states: Tensor, words: Tensor, side: int, negatives: Negatives | None = None) -> Tensor:
        """Sum of −log p.

        Args:
            states: `[n, dim]`.
            words: int64 `[n]`, what comes.
            side: 0 for forwards, 1 for backwards.
            negatives: that p is taken over, together with the word itself; None for all words.
        """
        weight, bias = self._table(side)
        if negatives is None:
            negatives = Negatives(np.arange(len(bias)), None)
        return sampled_loss(states, words, weight, bias, negatives, self.sampler if self.correction else None)

    @torch.inference_mode()
    def negative_log_likelihood(self, states: Tensor, words: Tensor, side: int) -> Tensor:
        """−log p of each word over all words, `[n]`."""
        weight, bias = self._table(side)
        parts = [
            F.cross_entropy(torch.addmm(bias, block, weight.t()).float(), answers, reduction="none")
            for block, answers in zip(*(x.split(max(1, _LOGITS // len(bias))) for x in (states, words)), strict=True)
        ]
        return torch.cat(parts) if parts else states.new_zeros(0)


def sampled_loss(
    states: Tensor, words: Tensor, weight: Tensor, bias: Tensor, negatives: Negatives, sampler: LogUniform | None = None
) -> Tensor:
    """Sum of −log p, p over each word itself and the negatives.

    A negative that is the word itself (an accidental hit) is left out for this word.

    Args:
        states: `[n, dim]`.
        words: int64 `[n]`.
        weight, bias: `[size, dim]` and `[size]`.
        negatives: see `Negatives`.
        sampler: they were drawn by, to correct for the draw; None for no correction.
    """
    device = states.device
    # One look into the large table for all that is needed of it: its gradient is one, too.
    drawn, answers = negatives.words, words.cpu().numpy()
    classes, place = np.unique(np.concatenate([drawn, answers]), return_inverse=True)
    rows = torch.from_numpy(classes).to(device)
    table, offset = weight[rows], bias[rows]
    if sampler is not None:
        offset = offset - torch.from_numpy(sampler.log_expected(classes, negatives.tries)).to(offset)
    columns, right = (torch.from_numpy(part).to(device) for part in np.split(place, [len(drawn)]))
    hit = np.minimum(np.searchsorted(drawn, answers), len(drawn) - 1)
    accidental = torch.from_numpy(np.where(drawn[hit] == answers, hit, -1)).to(device)
    own = table[right][:, None], offset[right][:, None]
    return cross_entropy(states, own, (table[columns], offset[columns]), accidental[:, None])
