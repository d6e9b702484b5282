"""One update of an alignment loss, exact for several processes and for a batch cut in parts.

An alignment loss is a function of the word vectors of a batch alone. So an update has three stages: vectors from the
model; the loss and its gradient in those vectors, with the vectors of all processes and parts at hand; that gradient
back through the model. This makes many processes, or a batch in parts, equal to one big batch for *every* loss, also
for a contrastive one, where each vector meets all others (after Gao et al. 2021, "Scaling Deep Contrastive Learning
Batch Size under Memory Limited Setup").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from calque.alignment.aligned import AlignedText, GroupRows, Update
from calque.distributed import Processes, same_device
from calque.encoders.batches import collate, token_batches
from calque.encoders.numerics import TRAINING_PRECISIONS, matmul_precision
from calque.encoders.trainable import TrainableEncoder
from calque.offsets import offsets_of, ranges
from calque.storage import vectors_room
from calque.training.objective import Objective
from calque.training.passes import Pass
from calque.training.sources import float32_copy


@dataclass
class GroupVectors:
    """The word vectors of one corpus and layer in an update.

    Args:
        source, target: `[n_pairs, dim]` linked words, pair by pair.
        regularised: `[n_target_words, dim]` all words of the target sentences.
        reference: `[n_target_words, dim]` the same words from the frozen encoder; None if the loss has no use for it.
        reference_linked: `[n_pairs, dim]` the linked target words from the frozen encoder.
        pairs_of_process: pairs of each process in this update.
        words_of_process: target words of each process in this update.
        kinds: int64 `[n_pairs, 1]`, equal for pairs that are positives of each other, -1 for none; None for none at all.
        sentences: `[n_sentence_pairs, dim]` of both sides, the mean of a sentence's words; None where nothing reads them.
        sentences_of_process: sentence pairs of each process in this update.
    """

    source: Tensor
    target: Tensor
    regularised: Tensor
    reference: Tensor | None
    reference_linked: Tensor | None
    pairs_of_process: list[int]
    words_of_process: list[int]
    kinds: Tensor | None = None
    sentences: tuple[Tensor, Tensor] | None = None
    sentences_of_process: list[int] = field(default_factory=list)

    @property
    def n_pairs(self) -> int:
        """Pairs of all processes."""
        return sum(self.pairs_of_process)

    @property
    def n_regularised(self) -> int:
        """Target words of all processes."""
        return sum(self.words_of_process)


class Reference:
    """Word vectors of the encoder as it was before training (f0), always in evaluation mode and without gradient.

    Kept from one pass over the target sentences, or computed anew for every update where they would need too much
    memory; in the arithmetic of the training, so that they differ from f by what was learnt alone.
    """

    #: above this the vectors are recomputed, unless asked otherwise
    largest = 2_000_000_000

    def __init__(
        self,
        encoder: TrainableEncoder,
        text: AlignedText,
        layers: Sequence[int],
        budget: int,
        processes: Processes,
    ):
        weights = next(encoder.model.parameters())
        if weights.dtype != torch.float32 or not same_device(weights.device, processes.device):
            encoder = float32_copy(encoder, processes.device)
        self._encoder, self._text, self._layers, self._budget = encoder, text, layers, budget
        self._processes = processes
        self._cached: dict[int, Tensor] | None = None

    def keep(self, how: Literal["auto", "cached", "recomputed"], precision: str) -> None:
        """Compute all vectors now, if that is what `how` asks for, in the arithmetic of the training."""
        size = self._text.n_reference * self._encoder.dim * len(self._layers) * 4
        if how == "cached" or (how == "auto" and size <= self.largest):
            with matmul_precision(TRAINING_PRECISIONS[precision]):
                self._cached = self._compute(self._text.target_sentences)

    def vectors(self, update: Update, layer: int, numbers: np.ndarray) -> Tensor:
        """Rows of target words given by their numbers, `[n, dim]`."""
        if self._cached is not None:
            return self._cached[layer][torch.from_numpy(numbers).to(self._cached[layer].device)]
        if update.reference is None:
            update.reference = self._compute(update.targets)
        # The update's sentences are few: their words' numbers, in the order of the rows just computed.
        starts = self._text.reference_start[update.targets]
        sizes = self._text.word_counts[update.targets]
        order = np.argsort(starts)
        which = order[np.searchsorted(starts[order], numbers, side="right") - 1]
        rows = offsets_of(sizes)[which] + numbers - starts[which]
        return update.reference[layer][torch.from_numpy(rows).to(update.reference[layer].device)]

    def _compute(self, sentences: np.ndarray) -> dict[int, Tensor]:
        """All words of `sentences` in their order, `{layer: [n_words, dim]}`."""
        text, encoder = self._text, self._encoder
        sizes = text.word_counts[sentences]
        start = offsets_of(sizes)[:-1]
        place = np.empty(len(text.word_counts), dtype=np.int64)
        place[sentences] = start
        device = next(encoder.model.parameters()).device
        shape = int(sizes.sum()), encoder.dim
        if device.type == "cpu":  # for a whole text a mapped file
            by_layer = {layer: torch.from_numpy(vectors_room(*shape, np.float32)) for layer in self._layers}
        else:
            by_layer = {layer: torch.zeros(shape, device=device) for layer in self._layers}
        encoder.model.eval()

        pieces = [sentences[piece] for piece in token_batches(text.table.lengths[sentences], self._budget)]
        with torch.no_grad(), self._processes.autocast():
            for piece in pieces:
                vectors = encoder.forward(collate(text.table, piece).to(device), self._layers)
                rows = torch.from_numpy(ranges(place[piece], text.word_counts[piece])).to(device)
                for layer, states in vectors.items():
                    by_layer[layer][rows] = states.float()
        return by_layer


class Alignment(Objective[Sequence[np.ndarray]]):
    """A loss of the linked words of an update.

    Args:
        text: the updates name its sentence pairs.
        reference: the encoder as it was, if the loss needs it.
        loss: the terms, for one layer; see `Tuner.loss`.
        over_all: names of the terms that every process computes over the vectors of all.
        budget, accumulate: see `Tuner`.
    """

    def __init__(
        self,
        encoder: TrainableEncoder,
        text: AlignedText,
        layers: Sequence[int],
        processes: Processes,
        reference: Reference | None,
        *,
        loss: Callable[[list[GroupVectors], Processes], dict[str, Tensor]],
        over_all: tuple[str, ...] = (),
        budget: int = 1024,
        accumulate: int = 1,
    ):
        self.module = encoder.model
        self.encoder, self.text, self.layers = encoder, text, tuple(layers)
        self.processes, self.reference = processes, reference
        self._loss, self._over_all, self._budget, self._accumulate = loss, over_all, budget, accumulate

    def backward(self, update: Sequence[np.ndarray]) -> dict[str, float]:
        """As for `Objective`; an update has for each corpus the numbers of the sentence pairs of all processes."""
        processes = self.processes
        parts = self.text.update(
            update, budget=self._budget, rank=processes.rank, world=processes.world, accumulate=self._accumulate
        )
        undivided = len(parts) == 1
        seed = torch.initial_seed()
        passes = [self._pass(part, seed + 7919 * i, gradient=undivided) for i, part in enumerate(parts)]
        leaves = [{layer: rows.requires_grad_() for layer, rows in done.vectors.items()} for done in passes]
        terms: dict[str, Tensor] = {}
        for layer in self.layers:
            for name, value in self._loss(self._groups(parts, leaves, layer), processes).items():
                terms[name] = terms[name] + value if name in terms else value
        torch.stack(list(terms.values())).sum().backward()
        for i, part in enumerate(parts):
            done = passes[i] if undivided else self._pass(part, seed + 7919 * i)
            done.backward({layer: rows.grad for layer, rows in leaves[i].items() if rows.grad is not None})
        # A term over vectors of all processes is the same on each of them, the others are shares of a sum.
        shown = torch.stack(
            [value.detach() / (processes.world if name in self._over_all else 1) for name, value in terms.items()]
        )
        shown = processes.sum_numbers(shown)
        return {"loss": float(shown.sum()), **dict(zip(terms, shown.tolist(), strict=True))}

    def _pass(self, part: Update, seed: int, *, gradient: bool = True) -> Pass:
        """Return all word vectors of a part."""
        torch.manual_seed(seed)  # the same dropout both times that a part is gone through
        collated = [collate(self.text.table, batch).to(self.processes.device) for batch in part.batches]
        return Pass(self.encoder, collated, self.layers, context=self.processes.autocast, gradient=gradient)

    def _groups(self, parts: list[Update], leaves: list[dict[int, Tensor]], layer: int) -> list[GroupVectors]:
        """Return the vectors of each corpus in a layer, those of this process's parts one after the other."""
        vectors = [leaf[layer] for leaf in leaves]
        return [
            self._group([part.groups[number] for part in parts], parts, vectors, layer)
            for number in range(len(parts[0].groups))
        ]

    def _group(self, rows: list[GroupRows], parts: list[Update], vectors: list[Tensor], layer: int) -> GroupVectors:
        def gather(name: str) -> Tensor:
            return torch.cat(
                [
                    each.index_select(0, self._index(getattr(group, name)))
                    for each, group in zip(vectors, rows, strict=True)
                ]
            )

        def frozen(name: str) -> Tensor | None:
            if (reference := self.reference) is None:
                return None
            numbers = [getattr(group, name) for group in rows]
            return torch.cat([reference.vectors(part, layer, n) for part, n in zip(parts, numbers, strict=True)])

        def means(side: int) -> Tensor:
            found = []
            for each, group in zip(vectors, rows, strict=True):
                words = group.sentences[side]  # type: ignore[index]
                counts = self._index(words.counts)
                sums = each.new_zeros(len(counts), each.shape[1])
                sums = sums.index_add(0, self._index(words.owner), each.index_select(0, self._index(words.rows)))
                found.append(sums / counts.clamp(min=1)[:, None])
            return torch.cat(found)

        def of_process(counts: tuple[int, ...]) -> list[int]:
            return np.array(counts, dtype=np.int64).reshape(self.processes.world, -1).sum(axis=1).tolist()

        kinds = [group.kinds for group in rows if group.kinds is not None]
        return GroupVectors(
            source=gather("source"), target=gather("target"), regularised=gather("regularised"),
            reference=frozen("reference"), reference_linked=frozen("reference_linked"),
            pairs_of_process=of_process(rows[0].pairs_of_part), words_of_process=of_process(rows[0].words_of_part),
            kinds=self._index(np.concatenate(kinds))[:, None] if kinds else None,
            sentences=None if rows[0].sentences is None else (means(0), means(1)),
            sentences_of_process=of_process(rows[0].sentences_of_part),
        )  # fmt: skip

    def _index(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(self.processes.device)
