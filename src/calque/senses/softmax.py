"""Predicting words, or senses of words, out of a large vocabulary: softmax over all classes, or over a sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.errors import InputError, SettingError
from calque.senses.cross_entropy import cross_entropy
from calque.senses.sense_files import SENSES_FILE, open_senses
from calque.senses.sense_table import SenseTable

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
        return _different(lambda: self.many(2 * count, rng), count)

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


def _different(draw: Callable[[], np.ndarray], count: int) -> Negatives:
    """Draw until there are `count` different classes."""
    drawn = np.zeros(0, dtype=np.int64)
    while True:
        drawn = np.concatenate([drawn, draw()])
        classes, first = np.unique(drawn, return_index=True)
        if len(classes) >= count:
            last = np.partition(first, count - 1)[count - 1]
            return Negatives(classes[first <= last], int(last) + 1)


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
        return sampled_loss(
            states, words[:, None], weight, bias, negatives, sampler=self.sampler if self.correction else None
        )

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
    states: Tensor,
    answers: Tensor,
    weight: Tensor,
    bias: Tensor,
    negatives: Negatives,
    *,
    sampler: LogUniform | SenseSampler | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Weighted sum of −log p, p over each answer itself and the negatives.

    A negative that is the answer itself (an accidental hit) is left out for this answer.

    Args:
        states: `[n, dim]`.
        answers: int64 `[n, k]`, classes; −1 for none.
        weight, bias: `[size, dim]` and `[size]`.
        negatives: see `Negatives`.
        sampler: they were drawn by, to correct for the draw; None for no correction.
        weights: `[n, k]`, of each −log p, 0 where there is no answer; None for 1.
    """
    device = states.device
    # One look into the large table for all that is needed of it: its gradient is one, too.
    drawn, wanted = negatives.words, answers.cpu().numpy()
    classes, place = np.unique(np.concatenate([drawn, np.maximum(wanted, 0).ravel()]), return_inverse=True)
    rows = torch.from_numpy(classes).to(device)
    table, offset = weight.index_select(0, rows), bias.index_select(0, rows)
    if sampler is not None:
        offset = offset - torch.from_numpy(sampler.log_expected(classes, negatives.tries)).to(offset)
    columns = torch.from_numpy(place[: len(drawn)]).to(device)
    right = torch.from_numpy(place[len(drawn) :].reshape(wanted.shape)).to(device)
    hit = np.minimum(np.searchsorted(drawn, wanted), len(drawn) - 1)
    accidental = torch.from_numpy(np.where(drawn[hit] == wanted, hit, -1)).to(device)
    return cross_entropy(
        states, (table[right], offset[right]), (table[columns], offset[columns]), accidental, weights=weights
    )


class Targets(NamedTuple):
    """What each state is to predict.

    Attributes:
        classes: int64 `[n, k]`, the selected sense of the word, then those of its translations; −1 for none.
        weights: `[n, k]`, of −log p of each; they sum to 1 (Eq. 7).
    """

    classes: Tensor
    weights: Tensor


class SenseSampler:
    """Draws classes in use: a word by its rank (`LogUniform`), and any of its senses.

    Args:
        table: whose words stand in the order of frequency.
    """

    def __init__(self, table: SenseTable):
        self._table, self._words = table, LogUniform(table.n_words)

    def draw(self, count: int, rng: np.random.Generator) -> Negatives | None:
        """Different classes, drawn until there are `count` of them; None, for all of them, where there are not twice as
        many."""
        live, sizes = self._live()
        if 2 * count >= len(live):
            return None
        first = np.cumsum(sizes) - sizes

        def draw() -> np.ndarray:
            words = self._words.many(2 * count, rng)
            return live[first[words] + (rng.random(2 * count) * sizes[words]).astype(np.int64)]

        return _different(draw, count)

    def log_expected(self, classes: np.ndarray, tries: int | None) -> np.ndarray:
        """Logarithm of how often a class is expected among the negatives, float64 `[n]`."""
        if tries is None:
            return np.zeros(len(classes))
        words = self._table.words.cpu().numpy()[classes]
        p = self._words.probability(words) / self._live()[1][words]
        return np.log(-np.expm1(tries * np.log1p(-p)))

    def _live(self) -> tuple[np.ndarray, np.ndarray]:
        """The classes in use, and how many each word has."""
        live = np.flatnonzero(self._table.live.cpu().numpy())
        return live, np.bincount(self._table.words.cpu().numpy()[live], minlength=self._table.n_words)


class SenseSoftmax(nn.Module):
    """p(sense | state) ∝ exp(w_sense · state + b_sense), over the senses of all words (Eq. 3).

    A bias, which the equation has not, is kept as the plain softmax has it (`WordSoftmax`).

    Args:
        tables: one for a model that reads both sides at once, two for one that reads forwards and backwards.
        negatives: classes drawn for each table in an update; None takes all.
        correction: see `WordSoftmax`.
    """

    def __init__(self, tables: Sequence[SenseTable], *, negatives: int | None = 8192, correction: bool = True):
        super().__init__()
        if negatives is not None and negatives < 1:
            raise SettingError(f"negatives is at least 1, got {negatives}")
        self.tables = nn.ModuleList(tables)
        self.samplers = [SenseSampler(table) for table in tables]
        self.negatives, self.correction = negatives, correction

    @classmethod
    def open(cls, folder: str | Path, *, words: int, dim: int, tables: int) -> SenseSoftmax:
        """The senses beside a language model, over all of which it predicts.

        Args:
            words, dim, tables: that the language model has.

        Raises:
            InputError: the file is missing or damaged, or is of another model.
        """
        saved = open_senses(folder).tables
        if len(saved) != tables or any((table.n_words, table.dim) != (words, dim) for table in saved):
            shapes = ", ".join(f"{table.n_words:,} × {table.dim}" for table in saved)
            raise InputError(
                f"senses of another model: {len(saved)} tables of words × dimensions {shapes}, expected {tables} of "
                f"{words:,} × {dim}",
                path=Path(folder) / SENSES_FILE,
            )
        return cls(saved, negatives=None)

    @property
    def senses(self) -> list[SenseTable]:
        """The tables."""
        return list(self.tables)  # type: ignore[arg-type]

    def draw(self, rng: np.random.Generator) -> list[Negatives | None]:
        """Negatives for each table, or None for all classes."""
        return [None if self.negatives is None else s.draw(self.negatives, rng) for s in self.samplers]

    def loss(self, states: Tensor, targets: Targets, side: int, negatives: Negatives | None = None) -> Tensor:
        """Sum of −log p, weighted, p over each target itself and the negatives. The other senses of the predicted word are
        among these only where they are drawn.

        Args:
            states: `[n, dim]`.
            targets: see `Targets`.
            side: number of the table.
            negatives: None for all classes in use.
        """
        table, sampler = self.senses[side], self.samplers[side]
        if negatives is None:
            negatives = Negatives(np.flatnonzero(table.live.cpu().numpy()), None)
        return sampled_loss(
            states, targets.classes, table.weight, table.bias, negatives, sampler=sampler if self.correction else None,
            weights=targets.weights.to(states),
        )  # fmt: skip

    @torch.inference_mode()
    def negative_log_likelihood(self, states: Tensor, words: Tensor, side: int) -> Tensor:
        """−log of the sum of p over the senses of each word, `[n]`."""
        table = self.senses[side]
        live = table.live.nonzero().squeeze(1)
        weight, bias, of_word = table.weight[live], table.bias[live], table.words[live]
        parts = []
        for block, answers in zip(*(x.split(max(1, _LOGITS // len(live))) for x in (states, words)), strict=True):
            scores = torch.addmm(bias, block, weight.t()).float()
            right = scores.masked_fill(of_word != answers[:, None], -torch.inf)
            parts.append(scores.logsumexp(1) - right.logsumexp(1))
        return torch.cat(parts) if parts else states.new_zeros(0)
