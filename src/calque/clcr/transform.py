"""Transforms from the vectors of one language into the space of another, trained on sentence pairs
without word alignment.

The method is described in §3.1 of "Language-independent cross-lingual contextual representations"
(CLCR, submitted to ICLR 2020). The paper's "tokens" are words here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calque.clcr.pivots import covered_rows, mutual_rows
from calque.distributed import Processes
from calque.nn.matched import MatchedSentences, attention
from calque.offsets import offsets_of, ranges
from calque.training.objective import Objective
from calque.training.sources import VectorSource
from calque.vectors import Embeddings

_BLOCK = 65_536  # number of vectors that are summed at a time


class Transform(nn.Module):
    """Transform T(r) = A·r + a + C·relu(B·r + b) of a word vector (CLCR, Eq. 1). Eq. 1 has no
    biases a and b, but the paper calls the layers "Linear", and the layers of that name in PyTorch
    have biases.

    All weights except B and b are initialised to 0. Attention over the transformed vectors is
    therefore uniform at first, and the first updates fit the mean of the translation's vectors,
    which has a unique solution. Attention sharpens later.

    Args:
        dim: dimension of the input vectors.
        out: dimension of the output vectors; default: `dim`.
        hidden: number of rows of B; default: `dim`. With 0, T(r) is A·r + a ("linear regression" in
            Table 1).

    Attributes:
        settings: arguments for building a module with the same shapes, as `Transform(**settings)`.

    Example:
        >>> Transform(8, 6)(torch.randn(3, 8)).shape
        torch.Size([3, 6])
    """

    def __init__(self, dim: int, out: int | None = None, hidden: int | None = None):
        super().__init__()
        if out is None:
            out = dim
        if hidden is None:
            hidden = dim
        self.settings: dict[str, int] = {"dim": dim, "out": out, "hidden": hidden}
        self.linear = nn.Linear(dim, out)  # A and a
        self.inner = nn.Linear(dim, hidden) if hidden else None  # B and b
        self.outer = nn.Linear(hidden, out, bias=False) if hidden else None  # C
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        if self.outer is not None:
            nn.init.zeros_(self.outer.weight)

    def forward(self, rows: Tensor) -> Tensor:
        """Transform vectors, `[n, dim]` to `[n, out]`."""
        moved = self.linear(rows)
        if self.inner is None or self.outer is None:
            return moved
        return torch.addmm(moved, torch.relu(self.inner(rows)), self.outer.weight.T)  # Eq. 1

    @torch.no_grad()
    def between(self, source: tuple[Tensor, float], target: tuple[Tensor, float]) -> Transform:
        """Return an equivalent transform for unscaled vectors, m_t + s_t · T((r − m_s) / s_s).

        Args:
            source, target: mean `[dim]` and scale of the unscaled input vectors, and of the
                unscaled output vectors.
        """
        (m_s, s_s), (m_t, s_t) = source, target
        # The scaling is merged into the weights in float64, because the means can be large.
        device = self.linear.weight.device
        m_s, m_t = m_s.to(device, torch.float64), m_t.to(device, torch.float64)
        a = self.linear.weight.double() / s_s
        state = {
            "linear.weight": a * s_t,
            "linear.bias": (self.linear.bias.double() - a @ m_s) * s_t + m_t,
        }
        if self.inner is not None and self.outer is not None:
            b = self.inner.weight.double() / s_s
            state["inner.weight"] = b
            state["inner.bias"] = self.inner.bias.double() - b @ m_s
            state["outer.weight"] = self.outer.weight.double() * s_t
        other = Transform(**self.settings).to(self.linear.weight)
        other.load_state_dict(state)
        return other


def attention_distance(
    keys: Tensor, queries: Tensor, sentences: MatchedSentences, *, temperature: float = 1.0
) -> Tensor:
    """Return the distance of each word to its match in the other sentence, found by attention
    (CLCR, Eqs. 2 and 3).

        a_ji = −‖q_j − k_i‖² / (2√d),    p_j = softmax(a_j / τ),    D_j = ‖Σ_i p_ji k_i − q_j‖² / d

    The paper does not specify the attention scores. The scores above select the nearest key as τ
    falls. Dot products, a_ji = q_j · k_i / √d, differ from these scores by ‖k_i‖² / (2√d), up to a
    constant in i. As τ falls, dot products can select a key with a large norm instead of a near
    key, so words with short vectors get wrong matches.

    The distance D(T(r¹) ‖ r²) of two sentences is the mean over the words of the second sentence,
    with keys T(r¹) and queries r².

    Args:
        keys: transformed word vectors T(r) of one side, `[n_keys, d]`.
        queries: word vectors of the other side, `[n_queries, d]`.
        sentences: layout of the sentence pairs in keys and queries.

    Returns:
        the distance D of each query, `[n_queries]`.
    """
    with torch.autocast(queries.device.type, enabled=False):
        # With `nearest`, the scores are q · k − ‖k‖² / 2, which is −‖q − k‖² / 2 up to a constant.
        scale = 1 / (queries.shape[1] ** 0.5 * temperature)
        matches = attention(keys, queries, sentences, scale=scale, nearest=True)  # Eq. 3
        return (matches - queries).square().mean(1)  # Eq. 2


# -- the objective of the phases -------------------------------------------------------------------
@dataclass(frozen=True)
class Space:
    """Mean of the vectors of a language, float64 `[dim]`, and their spread. The spread is the
    square root of the mean variance of the components, or 1 if all vectors are equal."""

    mean: Tensor
    spread: float

    @classmethod
    def of(cls, parts: Sequence[tuple[Embeddings, np.ndarray]]) -> Space:
        """Compute mean and spread over words; each part contains vectors, and the indices of the
        sentences to use.
        """
        dim = parts[0][0].dim
        n_words, total, squares = 0, np.zeros(dim), np.zeros(dim)
        for vectors, sentences in parts:
            rows = covered_rows(vectors, sentences)
            n_words += len(rows)
            for start in range(0, len(rows), _BLOCK):
                block = np.asarray(vectors.data[rows[start : start + _BLOCK]], dtype=np.float64)
                total += block.sum(0)
                squares += np.square(block).sum(0)
        mean = total / max(1, n_words)
        variance = float(np.mean(squares / max(1, n_words) - np.square(mean)))
        # Rounding can make the variance of equal vectors slightly negative.
        spread = max(variance, 0.0) ** 0.5
        if spread == 0.0:
            spread = 1.0
        return cls(torch.from_numpy(mean), spread)

    def scaled(self, rows: Tensor) -> Tensor:
        """Return `(rows - mean) / spread`."""
        shift = (-self.mean / self.spread).float().to(rows.device)
        return torch.add(shift, rows, alpha=1 / self.spread)


@dataclass(frozen=True)
class Side:
    """Non-pivot language with its two transforms, which apply to scaled vectors.

    Attributes:
        source, space: vectors of the sentences in this language, and their mean and spread before
            training.
        sentences, translations: indices of the training sentences, and of their translations among
            the sentences of the pivot language, int64 `[n]`.
    """

    lang: str
    source: VectorSource
    space: Space
    to_pivot: Transform
    from_pivot: Transform
    sentences: np.ndarray
    translations: np.ndarray


class Transforming(Objective[Sequence[np.ndarray]]):
    """Objective D(T₁₂(s¹) ‖ s²) + D(T₂₁(s²) ‖ s¹) for each language and the pivot, summed over the
    languages (CLCR, §3.1).

    Each D is the mean over all words of its second argument in an update, across all processes. τ =
    1 / (1 + β · step) falls with each update of a phase (Eq. 3).

    Args:
        sides: non-pivot languages with their transforms.
        pivot, space: vectors of the sentences in the pivot language, concatenated over all corpora,
            and their mean and spread.
        beta: annealing rate β; 0 keeps τ at 1.
        mutual: whether to minimise, instead of D, the cost of the current mutual best word pairs
            (not in the paper),

                ‖T₁₂(r¹_i) − r²_j‖² / d₂ + ‖T₂₁(r²_j) − r¹_i‖² / d₁

            summed over the pairs; the first term is divided by the number of pivot-language words,
            the second by the number of other words. In Eq. 2, every word has a match, even if it
            has no translation; `mutual` avoids such wrong matches.
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
        self._sides = sides
        self._pivot = pivot
        self._space = space
        self._name = name
        self._processes = processes
        self._beta = beta
        self._mutual = mutual
        self._step = 0
        maps = nn.ModuleList([nn.ModuleList([side.to_pivot, side.from_pivot]) for side in sides])
        sources = [pivot, *(side.source for side in sides)]
        encoders = [source.model for source in sources if source.model is not None]
        self.module = nn.ModuleList([maps, *encoders])

    @property
    def sizes(self) -> list[int]:
        """Number of sentence pairs for each non-pivot language."""
        return [len(side.sentences) for side in self._sides]

    @property
    def temperature(self) -> float:
        """Temperature τ of the next update (Eq. 3)."""
        return 1 / (1 + self._beta * self._step)

    def backward(self, update: Sequence[np.ndarray]) -> dict[str, float]:
        """Run the backward pass for an update. For each language, `update` contains the pair
        indices of all processes.
        """
        shards = [self._processes.share(numbers) for numbers in update]
        if any(len(numbers) for numbers in shards):
            distances = self._backward_shards(shards, update)
        else:  # there are fewer sentence pairs than processes
            distances = torch.zeros(len(self._sides), 2, device=self._processes.device)
        distances = self._processes.sum_numbers(distances)
        terms = {"loss": float(distances.sum())}
        for side, (forth, back) in zip(self._sides, distances.tolist(), strict=True):
            terms[f"{side.lang}-{self._name}"] = forth
            terms[f"{self._name}-{side.lang}"] = back
        terms["temperature"] = self.temperature
        return terms

    def _backward_shards(
        self, shards: Sequence[np.ndarray], update: Sequence[np.ndarray]
    ) -> Tensor:
        """Run the backward pass for the sentence pairs of this process, and return their distances,
        `[n_sides, 2]`.
        """
        # The pivot language's sentences of all languages are encoded together.
        translations = [
            side.translations[shard] for side, shard in zip(self._sides, shards, strict=True)
        ]
        pivot = _ScaledVectors(self._pivot, self._space, np.concatenate(translations))
        n_words = [int(self._pivot.lengths[numbers].sum()) for numbers in translations]
        pivot_rows = pivot.rows.split(n_words)
        taken = [pivot]
        losses = []
        for k, side in enumerate(self._sides):
            if not len(shards[k]):
                losses.append(torch.zeros(2, device=self._processes.device))
                continue
            vectors = _ScaledVectors(side.source, side.space, side.sentences[shards[k]])
            taken.append(vectors)
            pivot_lengths = self._pivot.lengths[translations[k]]
            forth, back = self._sums(
                side, vectors.rows, vectors.lengths, pivot_rows[k], pivot_lengths
            )
            # Each D is a mean over the words of all processes, so the processes' sums add up to it.
            n_forth = int(self._pivot.lengths[side.translations[update[k]]].sum())
            n_back = int(side.source.lengths[side.sentences[update[k]]].sum())
            losses.append(torch.stack([forth / n_forth, back / n_back]))
        distances = torch.stack(losses)
        distances.sum().backward()
        for vectors in taken:
            vectors.backward()
        return distances.detach()

    def _sums(
        self, side: Side, x: Tensor, lengths: np.ndarray, y: Tensor, pivot_lengths: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """Return the sum of D over the words y of the translations, and the sum over the words x of
        the sentences.
        """
        mapped_x, mapped_y = side.to_pivot(x), side.from_pivot(y)
        if self._mutual:
            i, j, _ = mutual_rows(
                x.detach(), y.detach(), mapped_x, mapped_y, lengths, pivot_lengths
            )
            forth = mapped_x.index_select(0, i) - y.index_select(0, j)
            back = mapped_y.index_select(0, j) - x.index_select(0, i)
            return forth.square().sum() / y.shape[1], back.square().sum() / x.shape[1]
        # Gradients reach an encoder only through its transformed keys, not through the queries.
        matched = MatchedSentences(lengths, pivot_lengths, device=x.device)
        forth = attention_distance(mapped_x, y.detach(), matched, temperature=self.temperature)
        back = attention_distance(
            mapped_y, x.detach(), matched.swapped(), temperature=self.temperature
        )
        return forth.sum(), back.sum()

    def after_update(self, step: int) -> None:
        self._step = step

    def state(self) -> dict[str, Any]:
        return {"step": self._step}

    def load_state(self, state: dict[str, Any]) -> None:
        self._step = int(state["step"])


class _ScaledVectors:
    """Scaled vectors of the sentences `numbers`, in this order; `backward` passes their gradients
    to the source.
    """

    def __init__(self, source: VectorSource, space: Space, numbers: np.ndarray):
        batch = source.take(numbers)
        self._source = source
        self.lengths = source.lengths[numbers]
        # a leaf of the graph: gradients stop here, and `backward` continues in the source
        self._leaf = batch.rows.detach().requires_grad_(source.model is not None)
        self.rows = space.scaled(self._leaf)
        if not np.array_equal(batch.numbers, numbers):
            # A source that is trained returns its sentences sorted by length.
            by_number = np.argsort(batch.numbers)
            place = by_number[np.searchsorted(batch.numbers[by_number], numbers)]
            rows = ranges(offsets_of(batch.lengths.numpy())[place], self.lengths)
            self.rows = self.rows.index_select(0, torch.from_numpy(rows).to(self._leaf.device))

    def backward(self) -> None:
        if self._leaf.grad is not None:
            self._source.backward(self._leaf.grad)
