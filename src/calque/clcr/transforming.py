"""What the phases of CLCR's first step minimise: the distance of two sentences by attention, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calque.clcr.pivots import mutual_rows
from calque.clcr.transform import Score, Transform, attention_distance
from calque.distributed import Processes
from calque.nn.matched import MatchedSentences
from calque.offsets import offsets_of, ranges
from calque.training.objective import Objective
from calque.training.sources import VectorSource, WordRows
from calque.vectors import Embeddings

Words = tuple[Tensor, np.ndarray]  # [W, dim], and the number of words of each sentence


@dataclass(frozen=True)
class Space:
    """Mean and spread of the vectors of a language.

    Attributes:
        mean: float64 `[dim]`.
        spread: root of the mean over components of their variance; 1 where all are the same.
    """

    mean: Tensor
    spread: float

    @classmethod
    def of(cls, parts: Sequence[tuple[Embeddings, np.ndarray]]) -> Space:
        """Measure the words of some sentences that have a vector; each part is vectors, and numbers of sentences there."""
        dim, n = parts[0][0].dim, 0
        total, squares = np.zeros(dim), np.zeros(dim)
        for vectors, sentences in parts:
            rows = ranges(vectors.offsets[sentences], np.diff(vectors.offsets)[sentences])
            rows = rows if vectors.covered is None else rows[vectors.covered[rows]]
            n += len(rows)
            for start in range(0, len(rows), 65_536):
                part = np.asarray(vectors.data[rows[start : start + 65_536]], dtype=np.float64)
                total, squares = total + part.sum(0), squares + np.square(part).sum(0)
        mean = total / max(1, n)
        variance = float(np.mean(squares / max(1, n) - np.square(mean)))
        return cls(torch.from_numpy(mean), max(variance, 0.0) ** 0.5 or 1.0)

    @classmethod
    def plain(cls, dim: int) -> Space:
        """Return the space in which vectors stay as they are."""
        return cls(torch.zeros(dim, dtype=torch.float64), 1.0)


class ScaledSource(VectorSource):
    """Vectors less the mean of their space, divided by its spread.

    Args:
        space: theirs; it stays the same while `whole` learns.
    """

    def __init__(self, whole: VectorSource, space: Space, device: torch.device | str = "cpu"):
        self._whole, self._scale = whole, 1 / space.spread
        self._shift = (-space.mean * self._scale).float().to(device)
        self.dim, self.lengths, self.model = whole.dim, whole.lengths, whole.model

    def take(self, numbers: np.ndarray) -> WordRows:
        given = self._whole.take(numbers)
        return WordRows(torch.add(self._shift, given.rows, alpha=self._scale), given.lengths, given.numbers)

    def backward(self, gradient: Tensor) -> None:
        self._whole.backward(gradient * self._scale)


@dataclass(frozen=True)
class Side:
    """A language beside the pivot, and its two transforms.

    Attributes:
        lang: the language.
        source: vectors of its sentences.
        to_pivot, from_pivot: T into the pivot's space and back.
        sentences: int64 `[n]`, the sentences that are trained on.
        translations: int64 `[n]`, their translations among the sentences of the pivot.
    """

    lang: str
    source: VectorSource
    to_pivot: Transform
    from_pivot: Transform
    sentences: np.ndarray
    translations: np.ndarray


class Transforming(Objective[Sequence[np.ndarray]]):
    """D(T₁₂(s¹) ‖ s²) + D(T₂₁(s²) ‖ s¹) of each language with the pivot, and their sum over the languages (CLCR, §3.1).

    Each D is the mean over all words on its right side in an update, of all processes. τ = 1 / (1 + β · step) falls with
    the updates of this phase (Eq. 3).

    Args:
        sides: the languages beside the pivot.
        pivot: vectors of the pivot's sentences, of all corpora in a row.
        beta: β; 0 keeps τ at 1.
        score: see `attention_distance`.
        mutual: minimise the cost of the pivots as they are now instead, of words of which each is the other's best,

                ‖T₁₂(r¹_i) − r²_j‖² / d₂ + ‖T₂₁(r²_j) − r¹_i‖² / d₁

            summed, each part divided by the number of words of its side. In Eq. 2 every word has to be found, also one that
            nothing translates and each piece of a split word, and T is drawn towards them all; here it is not. Ours.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        pivot: VectorSource,
        *,
        name: str,
        processes: Processes,
        beta: float = 0.01,
        score: Score = "distance",
        mutual: bool = False,
    ):
        trained = [source.model for source in (pivot, *(side.source for side in sides)) if source.model is not None]
        maps = nn.ModuleList([nn.ModuleList([side.to_pivot, side.from_pivot]) for side in sides])
        self.module = nn.ModuleList([maps, *trained])
        self._sides, self._pivot, self._name, self._processes = sides, pivot, name, processes
        self._beta, self._score, self._mutual = beta, score, mutual
        self._step = 0

    @property
    def lengths(self) -> list[np.ndarray]:
        """Number of words of both sides of each sentence pair, `[side][pair]`, for grouping by length."""
        return [side.source.lengths[side.sentences] + self._pivot.lengths[side.translations] for side in self._sides]

    @property
    def temperature(self) -> float:
        """τ of the next update."""
        return 1 / (1 + self._beta * self._step)

    def backward(self, update: Sequence[np.ndarray]) -> dict[str, float]:
        """As for `Objective`; an update has for each side the numbers of the sentence pairs of all processes."""
        mine = [self._processes.share(numbers) for numbers in update]
        found = torch.zeros(len(self._sides), 2, device=self._processes.device)
        if any(map(len, mine)):
            found = self._own(mine, update)
        found = self._processes.sum_numbers(found)
        terms = {"loss": float(found.sum())}
        for side, (there, back) in zip(self._sides, found.tolist(), strict=True):
            terms |= {f"{side.lang}-{self._name}": there, f"{self._name}-{side.lang}": back}
        return {**terms, "temperature": self.temperature}

    def _own(self, mine: Sequence[np.ndarray], update: Sequence[np.ndarray]) -> Tensor:
        """Return the distances of this process's sentence pairs, `[side, 2]`; gradients go to whatever learns."""
        numbers = [side.translations[n] for side, n in zip(self._sides, mine, strict=True)]
        pivot = _Taken(self._pivot, np.concatenate(numbers))
        translations = pivot.rows.split([int(self._pivot.lengths[n].sum()) for n in numbers])
        taken, losses = [pivot], []
        for side, own, whole, there, y in zip(self._sides, mine, update, numbers, translations, strict=True):
            if not len(own):
                losses.append(torch.zeros(2, device=self._processes.device))
                continue
            taken.append(_Taken(side.source, side.sentences[own]))
            words = (
                int(self._pivot.lengths[side.translations[whole]].sum()),
                int(side.source.lengths[side.sentences[whole]].sum()),
            )
            sums = self._sums(side, (taken[-1].rows, taken[-1].lengths), (y, self._pivot.lengths[there]))
            losses.append(torch.stack([total / n for total, n in zip(sums, words, strict=True)]))
        distances = torch.stack(losses)
        distances.sum().backward()
        for each in taken:
            each.backward()
        return distances.detach()

    def _sums(self, side: Side, mine: Words, translations: Words) -> tuple[Tensor, Tensor]:
        """Return the sums of D over the words of the translations, and over those of the sentences."""
        (x, lengths), (y, lengths_there) = mine, translations
        there, back = side.to_pivot(x), side.from_pivot(y)
        if self._mutual:
            i, j, _ = mutual_rows(x.detach(), y.detach(), there, back, lengths, lengths_there)
            forth = (there.index_select(0, i) - y.index_select(0, j)).square().sum() / y.shape[1]
            return forth, (back.index_select(0, j) - x.index_select(0, i)).square().sum() / x.shape[1]
        matched = MatchedSentences(lengths, lengths_there, device=x.device)
        how: Any = {"temperature": self.temperature, "score": self._score}
        forth = attention_distance(there, y.detach(), matched, **how).sum()
        return forth, attention_distance(back, x.detach(), matched.swapped(), **how).sum()

    def after_update(self, step: int) -> None:
        self._step = step

    def state(self) -> dict[str, Any]:
        return {"step": self._step}

    def load_state(self, state: dict[str, Any]) -> None:
        self._step = int(state["step"])


class _Taken:
    """Vectors of some sentences for an update, in the order in which they were asked for, and their backward pass.

    Args:
        source: gives them, in an order of its own.
        numbers: of the sentences, each at most once.
    """

    def __init__(self, source: VectorSource, numbers: np.ndarray):
        given = source.take(numbers)
        self._source, self.lengths = source, source.lengths[numbers]
        self.rows = self._given = given.rows.requires_grad_(source.model is not None)
        if not np.array_equal(given.numbers, numbers):
            order = np.argsort(given.numbers)
            place = order[np.searchsorted(given.numbers[order], numbers)]
            rows = ranges(offsets_of(given.lengths.numpy())[place], self.lengths)
            self.rows = self._given.index_select(0, torch.from_numpy(rows).to(self._given.device))

    def backward(self) -> None:
        if self._given.grad is not None:
            self._source.backward(self._given.grad)
