"""What the three phases of CLCR's first step minimise: the distance of two sentences by attention, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calque.distributed import Processes
from calque.encoders.trainable import TrainableEncoder
from calque.nn.matched import MatchedSentences
from calque.nn.pivots import mutual_rows
from calque.nn.transform import Score, Transform, attention_distance
from calque.offsets import offsets_of, ranges
from calque.training.objective import Objective
from calque.training.sources import VectorSource, WordRows
from calque.vectors import Embeddings


@dataclass(frozen=True)
class Space:
    """Where the vectors of a language lie, and how wide.

    Attributes:
        mean: float64 `[dim]`.
        spread: root of the mean over components of their variance; 1 where all are the same.
    """

    mean: Tensor
    spread: float

    @classmethod
    def of(cls, parts: Sequence[tuple[Embeddings, np.ndarray]]) -> Space:
        """Of the words of some sentences that have a vector; each part is vectors, and numbers of sentences there."""
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
        """One in which vectors stay as they are."""
        return cls(torch.zeros(dim, dtype=torch.float64), 1.0)


class ScaledSource(VectorSource):
    """Vectors less the mean of their space, divided by its spread.

    Args:
        whole: gives the vectors.
        space: theirs; it stays the same while `whole` learns.
        device: of the vectors.
    """

    def __init__(self, whole: VectorSource, space: Space, device: torch.device | str = "cpu"):
        self._whole, self._scale = whole, 1 / space.spread
        self._shift = (-space.mean * self._scale).float().to(device)
        self.dim, self.lengths, self.model, self.threads = whole.dim, whole.lengths, whole.model, whole.threads

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
        name: of the pivot language.
        processes: of this run.
        trained: the encoder that learns too; None for the transforms alone.
        beta: β; 0 keeps τ at 1.
        score: see `attention_distance`.
        live: whether the encoder that learns is drawn to what is transformed from the other language, too; else it has a
            gradient only where its own vectors are transformed, and meets what the other language's vectors are.
        transforms: whether the transforms learn.
        accumulate: in so many parts, one after the other in memory, each process goes through its share of an update.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        pivot: VectorSource,
        *,
        name: str,
        processes: Processes,
        trained: TrainableEncoder | None = None,
        beta: float = 0.01,
        score: Score = "distance",
        live: bool = False,
        transforms: bool = True,
        accumulate: int = 1,
    ):
        maps = nn.ModuleList([nn.ModuleList([side.to_pivot, side.from_pivot]) for side in sides])
        maps.requires_grad_(transforms)
        self.module = nn.ModuleList([maps] if trained is None else [maps, trained.model])
        self._sides, self._pivot, self._name, self._processes = sides, pivot, name, processes
        self._beta, self._score, self._live, self._accumulate = beta, score, live, accumulate
        self._step = 0

    @property
    def lengths(self) -> list[np.ndarray]:
        """Words of both sides of each sentence pair, `[side][pair]`, for grouping by length."""
        return [side.source.lengths[side.sentences] + self._pivot.lengths[side.translations] for side in self._sides]

    @property
    def temperature(self) -> float:
        """τ of the next update."""
        return 1 / (1 + self._beta * self._step)

    def backward(self, update: Sequence[np.ndarray]) -> dict[str, float]:
        """As for `Objective`; an update has for each side the numbers of the sentence pairs of all processes."""
        words = []
        for side, numbers in zip(self._sides, update, strict=True):
            of_language = int(side.source.lengths[side.sentences[numbers]].sum())
            words.append((int(self._pivot.lengths[side.translations[numbers]].sum()), of_language))
        shares = [np.array_split(self._processes.share(numbers), self._accumulate) for numbers in update]
        found = torch.zeros(len(self._sides), 2, device=self._processes.device)
        for part in zip(*shares, strict=True):
            if any(map(len, part)):
                found += self._part(part, words)
        found = self._processes.sum_numbers(found)
        terms = {"loss": float(found.sum())}
        for side, (there, back) in zip(self._sides, found.tolist(), strict=True):
            terms |= {f"{side.lang}-{self._name}": there, f"{self._name}-{side.lang}": back}
        return {**terms, "temperature": self.temperature}

    def _part(self, part: Sequence[np.ndarray], words: Sequence[tuple[int, int]]) -> Tensor:
        """Distances of some sentence pairs, each a share of the mean; their gradient goes to whatever learns."""
        pivot = _Taken(self._pivot, np.concatenate([s.translations[n] for s, n in zip(self._sides, part, strict=True)]))
        losses, taken, place = [], [pivot], 0
        for side, numbers, totals in zip(self._sides, part, words, strict=True):
            translations = pivot.some(place, len(numbers))
            place += len(numbers)
            if len(numbers):
                mine = _Taken(side.source, side.sentences[numbers])
                taken.append(mine)
                losses.append(self._distances(side, mine.some(0, len(numbers)), translations, totals))
            else:
                losses.append(torch.zeros(2, device=self._processes.device))
        distances = torch.stack(losses)
        distances.sum().backward()
        for each in taken:
            each.backward()
        return distances.detach()

    def _distances(self, side: Side, mine: Words, translations: Words, totals: tuple[int, int]) -> Tensor:
        (x, lengths), (y, lengths_there) = mine, translations
        there = MatchedSentences(lengths, lengths_there, device=x.device)
        options: dict[str, Any] = {"temperature": self.temperature, "score": self._score}
        goals = (x, y) if self._live else (x.detach(), y.detach())
        forth = attention_distance(side.to_pivot(x), goals[1], there, **options).sum() / totals[0]
        back = attention_distance(side.from_pivot(y), goals[0], there.swapped(), **options).sum() / totals[1]
        return torch.stack([forth, back])

    def after_update(self, step: int) -> None:
        self._step = step

    def state(self) -> dict[str, Any]:
        return {"step": self._step}

    def load_state(self, state: dict[str, Any]) -> None:
        self._step = int(state["step"])


class Refining(Transforming):
    """The cost of the pivots as they are now: of words of which each is the other's best,

        ‖T₁₂(r¹_i) − r²_j‖² / d₂ + ‖T₂₁(r²_j) − r¹_i‖² / d₁

    summed, and each part divided by the words of its side. In Eq. 2 every word has to be found, also one that nothing
    translates and each piece of a split word, and T is drawn towards them all; here it is not. Ours: not in the paper.
    """

    def _distances(self, side: Side, mine: Words, translations: Words, totals: tuple[int, int]) -> Tensor:
        (x, lengths), (y, lengths_there) = mine, translations
        there, back = side.to_pivot(x), side.from_pivot(y)
        i, j, _ = mutual_rows(x.detach(), y.detach(), there, back, lengths, lengths_there)
        forth = (there.index_select(0, i) - y.index_select(0, j)).square().sum() / (y.shape[1] * totals[0])
        return torch.stack(
            [forth, (back.index_select(0, j) - x.index_select(0, i)).square().sum() / (x.shape[1] * totals[1])]
        )


Words = tuple[Tensor, np.ndarray]  # [W, dim], and the words of each sentence


class _Taken:
    """Vectors of some sentences for an update, and their way back.

    Args:
        source: gives them, in an order of its own.
        numbers: of the sentences, each at most once.
    """

    def __init__(self, source: VectorSource, numbers: np.ndarray):
        given = source.take(numbers)
        self._source = source
        self._rows = given.rows.requires_grad_(source.model is not None)
        self._lengths = source.lengths[numbers]
        self._in_order = np.array_equal(given.numbers, numbers)
        order = np.argsort(given.numbers)
        place = order[np.searchsorted(given.numbers[order], numbers)]
        self._starts = offsets_of(given.lengths.numpy())[:-1][place]

    def some(self, start: int, n: int) -> Words:
        """Those of `n` sentences from number `start` on, in the order in which they were asked for."""
        lengths = self._lengths[start : start + n]
        if n == len(self._lengths) and self._in_order:
            return self._rows, lengths
        rows = torch.from_numpy(ranges(self._starts[start : start + n], lengths)).to(self._rows.device)
        return self._rows.index_select(0, rows), lengths

    def backward(self) -> None:
        if self._rows.grad is not None:
            self._source.backward(self._rows.grad)
