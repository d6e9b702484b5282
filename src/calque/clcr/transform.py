"""Vectors of one language into the space of another, learnt from sentences of which nobody knows which words match.

After "Language-independent cross-lingual contextual representations" (CLCR, submitted to ICLR 2020), §3.1. Where the paper
says token, a row here is a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calque.clcr.pivots import mutual_rows
from calque.distributed import Processes
from calque.nn.matched import MatchedSentences, attention
from calque.offsets import offsets_of, ranges
from calque.training.objective import Objective
from calque.training.sources import VectorSource
from calque.vectors import Embeddings


class Transform(nn.Module):
    """T(r) = A·r + a + C·relu(B·r + b), row by row (CLCR, Eq. 1); the biases a and b are ours, the paper says "Linear".

    It begins as 0, with B alone random. Attention to its rows is then even, so the first updates fit the mean of the
    translation's vectors, which is a question with one answer, and attention sharpens with what has been learnt.

    Args:
        dim: of the rows that come in.
        out: of the rows that go out; None for the same.
        hidden: rows of B; None for `dim`, 0 for A·r + a alone ("linear regression" in Table 1).

    Attributes:
        settings: what makes a module of the same shape, `Transform(**settings)`.

    Example:
        >>> Transform(8, 6)(torch.randn(3, 8)).shape
        torch.Size([3, 6])
    """

    def __init__(self, dim: int, out: int | None = None, hidden: int | None = None):
        super().__init__()
        out, hidden = dim if out is None else out, dim if hidden is None else hidden
        self.settings: dict[str, Any] = {"dim": dim, "out": out, "hidden": hidden}
        self.linear = nn.Linear(dim, out)
        self.inner = nn.Linear(dim, hidden) if hidden else None
        self.outer = nn.Linear(hidden, out, bias=False) if hidden else None
        for weights in (*self.linear.parameters(), *(() if self.outer is None else self.outer.parameters())):
            nn.init.zeros_(weights)

    def forward(self, rows: Tensor) -> Tensor:
        """`[n, dim]` to `[n, out]`."""
        moved = self.linear(rows)
        if self.inner is None or self.outer is None:
            return moved
        return torch.addmm(moved, torch.relu(self.inner(rows)), self.outer.weight.T)

    @torch.no_grad()
    def between(self, source: tuple[Tensor, float], target: tuple[Tensor, float]) -> Transform:
        """Return the same map where both spaces were shifted and scaled while it was learnt: m_t + s_t · T((r − m_s) / s_s).

        Args:
            source, target: mean `[dim]` and scale of the rows that come in, and of those that are to go out.
        """
        (m_s, s_s), (m_t, s_t) = (
            (mean.to(self.linear.weight.device, torch.float64), scale) for mean, scale in (source, target)
        )
        a = self.linear.weight.double() / s_s
        state = {"linear.weight": a * s_t, "linear.bias": (self.linear.bias.double() - a @ m_s) * s_t + m_t}
        if self.inner is not None and self.outer is not None:
            b = self.inner.weight.double() / s_s
            state |= {"inner.weight": b, "inner.bias": self.inner.bias.double() - b @ m_s}
            state |= {"outer.weight": self.outer.weight.double() * s_t}
        other = Transform(**self.settings).to(self.linear.weight)
        other.load_state_dict(state)
        return other


def attention_distance(
    keys: Tensor, queries: Tensor, sentences: MatchedSentences, *, temperature: float = 1.0
) -> Tensor:
    """Return the distance of each word from what it finds among the words of the other sentence (CLCR, Eqs. 2 and 3).

        a_ji = −‖q_j − k_i‖² / (2√d),    p_j = softmax(a_j / τ),    D_j = ‖Σ_i p_ji k_i − q_j‖² / d

    The paper only says "attention". The usual one, a_ji = q_j · k_i / √d, differs by ‖k_i‖² / (2√d): its largest product
    belongs to a long key as well as to a near one, so that words whose vectors are short find others than their translations
    as τ falls. Here what is sharpened is the nearest key.

    The distance D(T(r¹) ‖ r²) of two sentences is the mean over the words of the second, with keys T(r¹) and queries r².

    Args:
        keys: `[n_keys, d]`, T of the words of one side.
        queries: `[n_queries, d]`, the words of the other.
        sentences: where the sentence pairs lie in both.
        temperature: τ.

    Returns:
        D, `[n_queries]`, differentiable in keys and queries.
    """
    with torch.autocast(queries.device.type, enabled=False):
        scale = 1 / (queries.shape[1] ** 0.5 * temperature)
        found = attention(keys, queries, sentences, scale=scale, nearest=True)
        return (found - queries).square().mean(1)


# -- what the phases minimise ------------------------------------------------------------------------------------------
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

    def scaled(self, rows: Tensor) -> Tensor:
        """Return vectors less the mean, divided by the spread."""
        shift = (-self.mean / self.spread).float().to(rows.device)
        return torch.add(shift, rows, alpha=1 / self.spread)


@dataclass(frozen=True)
class Side:
    """A language beside the pivot, and its two transforms.

    Attributes:
        lang: the language.
        source: vectors of its sentences.
        space: of these; it stays the same while an encoder learns.
        to_pivot, from_pivot: T into the pivot's space and back, both spaces scaled.
        sentences: int64 `[n]`, the sentences that are trained on.
        translations: int64 `[n]`, their translations among the sentences of the pivot.
    """

    lang: str
    source: VectorSource
    space: Space
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
        space: of these.
        beta: β; 0 keeps τ at 1.
        mutual: minimise the cost of the pivots as they are now instead, of words of which each is the other's best,

                ‖T₁₂(r¹_i) − r²_j‖² / d₂ + ‖T₂₁(r²_j) − r¹_i‖² / d₁

            summed, each part divided by the number of words of its side. In Eq. 2 every word has to be found, also one that
            nothing translates and each piece of a split word, and T is drawn towards them all; here it is not. Ours.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        pivot: VectorSource,
        space: Space,
        *,
        name: str,
        processes: Processes,
        beta: float = 0.01,
        mutual: bool = False,
    ):
        trained = [source.model for source in (pivot, *(side.source for side in sides)) if source.model is not None]
        maps = nn.ModuleList([nn.ModuleList([side.to_pivot, side.from_pivot]) for side in sides])
        self.module = nn.ModuleList([maps, *trained])
        self._sides, self._pivot, self._space, self._name, self._processes = sides, pivot, space, name, processes
        self._beta, self._mutual = beta, mutual
        self._step = 0

    @property
    def sizes(self) -> list[int]:
        """Number of sentence pairs of each side."""
        return [len(side.sentences) for side in self._sides]

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
        pivot = _Taken(self._pivot, self._space, np.concatenate(numbers))
        translations = pivot.rows.split([int(self._pivot.lengths[n].sum()) for n in numbers])
        taken, losses = [pivot], []
        for side, own, whole, there, y in zip(self._sides, mine, update, numbers, translations, strict=True):
            if not len(own):
                losses.append(torch.zeros(2, device=self._processes.device))
                continue
            taken.append(_Taken(side.source, side.space, side.sentences[own]))
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

    def _sums(
        self, side: Side, mine: tuple[Tensor, np.ndarray], translations: tuple[Tensor, np.ndarray]
    ) -> tuple[Tensor, Tensor]:
        """Return the sums of D over the words of the translations, and over those of the sentences; each side is its words,
        `[W, dim]`, and their number in each sentence."""
        (x, lengths), (y, lengths_there) = mine, translations
        there, back = side.to_pivot(x), side.from_pivot(y)
        if self._mutual:
            i, j, _ = mutual_rows(x.detach(), y.detach(), there, back, lengths, lengths_there)
            forth = (there.index_select(0, i) - y.index_select(0, j)).square().sum() / y.shape[1]
            return forth, (back.index_select(0, j) - x.index_select(0, i)).square().sum() / x.shape[1]
        matched = MatchedSentences(lengths, lengths_there, device=x.device)
        forth = attention_distance(there, y.detach(), matched, temperature=self.temperature).sum()
        return forth, attention_distance(back, x.detach(), matched.swapped(), temperature=self.temperature).sum()

    def after_update(self, step: int) -> None:
        self._step = step

    def state(self) -> dict[str, Any]:
        return {"step": self._step}

    def load_state(self, state: dict[str, Any]) -> None:
        self._step = int(state["step"])


class _Taken:
    """Scaled vectors of some sentences for an update, in the order in which they were asked for, and their backward pass.

    Args:
        source: gives them, in an order of its own.
        numbers: of the sentences, each at most once.
    """

    def __init__(self, source: VectorSource, space: Space, numbers: np.ndarray):
        given = source.take(numbers)
        self._source, self.lengths = source, source.lengths[numbers]
        self._given = given.rows.detach().requires_grad_(source.model is not None)
        self.rows = space.scaled(self._given)
        if not np.array_equal(given.numbers, numbers):
            order = np.argsort(given.numbers)
            place = order[np.searchsorted(given.numbers[order], numbers)]
            rows = ranges(offsets_of(given.lengths.numpy())[place], self.lengths)
            self.rows = self.rows.index_select(0, torch.from_numpy(rows).to(self._given.device))

    def backward(self) -> None:
        if self._given.grad is not None:
            self._source.backward(self._given.grad)
