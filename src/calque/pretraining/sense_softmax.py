"""Predicting senses of words: softmax over the sense vectors of all words, or over a sample (Multi-sense, Eqs. 3 to 6)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from calque.encoders.sense_files import SENSES_FILE, open_senses
from calque.errors import InputError, SettingError
from calque.nn.cross_entropy import cross_entropy
from calque.nn.senses import SenseTable
from calque.pretraining.softmax import LogUniform, Negatives

Own = Literal["sampled", "always", "never"]
_LOGITS = 4_000_000  # numbers held at once where nothing is learnt


class Targets(NamedTuple):
    """What each state is to predict.

    Attributes:
        classes: int64 `[n, k]`, the selected sense of the word, then those of its translations; −1 for none.
        weights: `[n, k]`, of −log p of each; they sum to 1 (Eq. 7).
    """

    classes: Tensor
    weights: Tensor


class SenseLoss(NamedTuple):
    """A loss, and the rows of the table that it was computed with, whose gradients are to be added to the table's.

    Attributes:
        value: sum over the states.
        classes: int64 `[m]`, each once.
        rows: w `[m, dim]` and b `[m]`, leaves of their own: a gradient as large as the table is never made.
    """

    value: Tensor
    classes: Tensor
    rows: tuple[Tensor, Tensor]


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
        drawn = np.zeros(0, dtype=np.int64)
        while True:
            words = self._words.many(2 * count, rng)
            senses = (rng.random(2 * count) * sizes[words]).astype(np.int64)
            drawn = np.concatenate([drawn, live[first[words] + senses]])
            classes, places = np.unique(drawn, return_index=True)
            if len(classes) >= count:
                last = np.partition(places, count - 1)[count - 1]
                return Negatives(classes[places <= last], int(last) + 1)

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
        own: whether the other senses of the predicted word are among what its sense is told from: "sampled" where they are
            drawn, as published; "always", as in Eq. 3; "never", so that senses of one word are not pushed apart.
    """

    def __init__(
        self,
        tables: Sequence[SenseTable],
        *,
        negatives: int | None = 8192,
        correction: bool = True,
        own: Own = "sampled",
    ):
        super().__init__()
        if own not in ("sampled", "always", "never"):
            raise SettingError(f"own is sampled, always or never, got {own!r}")
        if negatives is not None and negatives < 1:
            raise SettingError(f"negatives is at least 1, got {negatives}")
        self.tables = nn.ModuleList(tables)
        self.samplers = [SenseSampler(table) for table in tables]
        self.negatives, self.correction, self.own = negatives, correction, own

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

    def loss(self, states: Tensor, targets: Targets, side: int, negatives: Negatives | None = None) -> SenseLoss:
        """Sum of −log p, weighted, p over each target itself and the negatives.

        Args:
            states: `[n, dim]`.
            targets: see `Targets`.
            side: number of the table.
            negatives: None for all classes in use.
        """
        table = self.senses[side]
        device = states.device
        answers, weights = targets.classes, targets.weights.to(states)
        counted = None
        if self.own != "sampled":
            answers, weights, counted = self._with_own(table, answers, weights)
        drawn = np.flatnonzero(table.live.cpu().numpy()) if negatives is None else negatives.words
        wanted = answers.cpu().numpy()
        classes, place = np.unique(np.concatenate([drawn, np.maximum(wanted, 0).ravel()]), return_inverse=True)
        chosen = torch.from_numpy(classes).to(device)
        rows = (table.weight.detach()[chosen].requires_grad_(), table.bias.detach()[chosen].requires_grad_())
        weight, offset = rows
        if self.correction and negatives is not None:
            offset = offset - torch.from_numpy(self.samplers[side].log_expected(classes, negatives.tries)).to(offset)
        columns = torch.from_numpy(place[: len(drawn)]).to(device)
        right = torch.from_numpy(place[len(drawn) :].reshape(wanted.shape)).to(device)
        hit = np.minimum(np.searchsorted(drawn, wanted), len(drawn) - 1)
        hits = torch.from_numpy(np.where(drawn[hit] == wanted, hit, -1)).to(device)
        if counted is None:
            counted = hits >= 0
        value = cross_entropy(
            states, (weight[right], offset[right]), (weight[columns], offset[columns]), hits, weights=weights,
            counted=counted,
        )  # fmt: skip
        return SenseLoss(value, chosen, rows)

    def _with_own(self, table: SenseTable, answers: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All senses in use of the predicted word as classes of weight 0, so that they are no matter of chance."""
        senses = table.index[table.words[answers[:, 0]]]
        senses = torch.where((senses >= 0) & table.live[senses.clamp(min=0)] & (senses != answers[:, :1]), senses, -1)
        counted = torch.cat([answers >= 0, (senses >= 0) & (self.own == "always")], dim=1)
        return torch.cat([answers, senses], dim=1), torch.cat([weights, weights.new_zeros(senses.shape)], 1), counted

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
