"""Exact gradients of alignment losses with several processes and with gradient accumulation.

An alignment loss is a function of the word vectors of a batch. An update computes the vectors,
gathers the vectors of all processes and parts, computes the loss and its gradient with respect to
the vectors, and backpropagates this gradient through the model. With several processes or parts,
the gradient of *every* loss, even a contrastive loss, thus equals that of one large batch (gradient
caching, Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited
Setup").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calque.alignment.aligned import AlignedText, GroupRows, Update
from calque.alignment.validation import Validation
from calque.distributed import Processes
from calque.encoders.batches import collate
from calque.encoders.trainable import TrainableEncoder
from calque.training.objective import Objective
from calque.training.sources import Pass, float32_copy


@dataclass
class LinkedBatch:
    """Word vectors of one text and layer in an update, gathered from all processes.

    Args:
        source, target: vectors of linked words and, with `Tuner.special`, of boundary tokens,
            `[n_pairs, dim]`. The target words are in the language `towards`.
        regularised: vectors of all words in the target sentences `[n_target_words, dim]`.
        reference: vectors of these target words from the frozen encoder `[n_target_words, dim]`, or
            None.
        reference_linked: vectors of the linked target words from the frozen encoder `[n_pairs,
            dim]`, or None.
        kinds: id of each pair, or −1, int64 `[n_pairs]`; pairs with equal ids are positives of each
            other. None if not used.
        sentences: mean word vectors of source and target sentences `[n_sentence_pairs, dim]`, or
            None.
    """

    source: Tensor
    target: Tensor
    regularised: Tensor
    reference: Tensor | None = None
    reference_linked: Tensor | None = None
    kinds: Tensor | None = None
    sentences: tuple[Tensor, Tensor] | None = None


class Alignment(Objective[Sequence[np.ndarray]]):
    """Training objective for a loss on linked words.

    Args:
        text: text from which updates select sentence pairs.
        reference: encoder before training (f0), or None if the loss does not use f0. f0 encodes the
            target sentences in every update, with the precision of the training.
        loss: see `Tuner.loss`.
        budget: maximum number of subwords in a forward pass, including padding.
        accumulate: number of parts into which each process divides its batch (gradient
            accumulation).

    Attributes:
        validation: comparison with the encoder before training, or None.
    """

    validation: Validation | None = None

    def __init__(
        self,
        encoder: TrainableEncoder,
        text: AlignedText,
        layers: Sequence[int],
        processes: Processes,
        reference: TrainableEncoder | None = None,
        *,
        loss: Callable[[LinkedBatch], Tensor | dict[str, Tensor]],
        budget: int = 1024,
        accumulate: int = 1,
    ):
        self.module = encoder.model
        self.encoder, self.text, self.layers = encoder, text, tuple(layers)
        if reference is not None:
            weights = next(reference.parameters())
            if weights.dtype != torch.float32 or weights.device != processes.device:
                reference = float32_copy(reference, processes.device)
            reference.model.eval()
        self.processes, self.reference = processes, reference
        self._loss, self._budget, self._accumulate = loss, budget, accumulate

    def after_update(self, step: int) -> None:
        if self.validation is not None:
            self.validation.after_update(step)

    def scores(self) -> dict[str, float]:
        if self.validation is None or not self.validation.points:
            return {}
        last = self.validation.points[-1]
        return {f"held_out_{name}": last[name] for name in ("words", "sentences")}

    def state(self) -> dict[str, Any]:
        return {} if self.validation is None else {"validation": self.validation.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        if self.validation is not None:
            self.validation.load_state(state["validation"])

    def backward(self, update: Sequence[np.ndarray]) -> dict[str, float]:
        """Compute the loss and its gradients, see `Objective`.

        Args:
            update: indices of the sentence pairs of each corpus, for all processes.
        """
        parts = self.text.update(
            update,
            budget=self._budget,
            rank=self.processes.rank,
            world=self.processes.world,
            accumulate=self._accumulate,
        )
        # A single part keeps its activations. With several parts, only the vectors are kept, and
        # each part is encoded a second time for the backward pass, with the same dropout masks.
        is_undivided = len(parts) == 1
        seed = torch.initial_seed()
        seeds = [seed + 7919 * number for number in range(len(parts))]
        passes = [
            self._pass(part, part_seed, gradient=is_undivided)
            for part, part_seed in zip(parts, seeds, strict=True)
        ]
        frozen = [self._frozen(part) for part in parts]
        # The vectors are leaves of the loss's graph, so that its gradient stops at them.
        leaves: list[dict[int, Tensor]] = []
        for encoded in passes:
            leaves.append({n: rows.requires_grad_() for n, rows in encoded.vectors.items()})

        terms = self._terms(parts, leaves, frozen)
        torch.stack(list(terms.values())).sum().backward()
        for number, part in enumerate(parts):
            encoded = passes[number] if is_undivided else self._pass(part, seeds[number])
            gradients = {n: rows.grad for n, rows in leaves[number].items()}
            encoded.backward({n: grad for n, grad in gradients.items() if grad is not None})
        # Every process has all vectors and computes the same loss, but backpropagates only through
        # its own vectors.
        values = torch.stack([value.detach() for value in terms.values()])
        return {"loss": float(values.sum()), **dict(zip(terms, values.tolist(), strict=True))}

    def _terms(
        self,
        parts: Sequence[Update],
        leaves: Sequence[dict[int, Tensor]],
        frozen: Sequence[dict[int, Tensor]],
    ) -> dict[str, Tensor]:
        """Return the terms of the loss, each summed over all layers and texts."""
        terms: dict[str, Tensor] = {}
        for layer in self.layers:
            for number in range(len(parts[0].groups)):
                loss = self._loss(self._batch(parts, leaves, frozen, layer, number))
                if isinstance(loss, Tensor):
                    loss = {"align": loss}
                for name, value in loss.items():
                    terms[name] = terms[name] + value if name in terms else value
        return terms

    def _pass(self, part: Update, seed: int, *, gradient: bool = True) -> Pass:
        """Run the forward pass over the sentences of a part."""
        torch.manual_seed(seed)  # both forward passes of a part must use the same dropout masks
        return self._encode(self.encoder, part.batches, gradient)

    def _frozen(self, part: Update) -> dict[int, Tensor]:
        """Return the frozen encoder's word vectors of a part's target sentences."""
        if self.reference is None:
            return {}
        return self._encode(self.reference, part.target_batches, False).vectors

    def _encode(
        self, encoder: TrainableEncoder, batches: Sequence[np.ndarray], gradient: bool
    ) -> Pass:
        collated = [collate(self.text.table, batch).to(self.processes.device) for batch in batches]
        return Pass(
            encoder, collated, self.layers, context=self.processes.autocast, gradient=gradient
        )

    def _batch(
        self,
        parts: Sequence[Update],
        leaves: Sequence[dict[int, Tensor]],
        frozen: Sequence[dict[int, Tensor]],
        layer: int,
        number: int,
    ) -> LinkedBatch:
        """Return the vectors of one text and layer, ordered by process rank and then by part."""
        groups = [part.groups[number] for part in parts]
        vectors = [by_layer[layer] for by_layer in leaves]
        n_pairs, n_words = groups[0].pairs_of_part, groups[0].words_of_part

        def gather(rows: Sequence[Tensor], name: str, counts: tuple[int, ...]) -> Tensor:
            """Gather the rows that the attribute `name` of each group selects."""
            selected = []
            for part_rows, group in zip(rows, groups, strict=True):
                selected.append(part_rows.index_select(0, self._index(getattr(group, name))))
            return self._gather(selected, counts)

        reference = reference_linked = None
        if self.reference is not None:
            before = [by_layer[layer] for by_layer in frozen]
            reference = gather(before, "reference", n_words)
            reference_linked = gather(before, "reference_linked", n_pairs)
        kinds = [self._index(group.kinds)[:, None] for group in groups if group.kinds is not None]
        sentences = None
        if groups[0].sentences is not None:
            sentences = self._means(vectors, groups, 0), self._means(vectors, groups, 1)
        return LinkedBatch(
            gather(vectors, "source", n_pairs),
            gather(vectors, "target", n_pairs),
            gather(vectors, "regularised", n_words),
            reference,
            reference_linked,
            kinds=self._gather(kinds, n_pairs).squeeze(1) if kinds else None,
            sentences=sentences,
        )

    def _means(self, vectors: Sequence[Tensor], groups: Sequence[GroupRows], side: int) -> Tensor:
        """Return the mean word vector of each sentence on one side, `[n_sentence_pairs, dim]`."""
        means = []
        for part_vectors, group in zip(vectors, groups, strict=True):
            assert group.sentences is not None  # the caller has checked it
            words = group.sentences[side]
            counts = self._index(words.counts)
            sums = part_vectors.new_zeros(len(counts), part_vectors.shape[1])
            selected = part_vectors.index_select(0, self._index(words.rows))
            sums = sums.index_add(0, self._index(words.owner), selected)
            means.append(sums / counts.clamp(min=1)[:, None])
        return self._gather(means, groups[0].sentences_of_part)

    def _gather(self, rows: Sequence[Tensor], counts: tuple[int, ...]) -> Tensor:
        """Gather the rows of all processes.

        Args:
            rows: rows of each part of this process.
            counts: number of rows in each part of every process, ordered by process.
        """
        by_process = np.array(counts, dtype=np.int64).reshape(self.processes.world, -1).sum(axis=1)
        return self.processes.gather_rows(torch.cat(list(rows)), by_process.tolist())

    def _index(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(self.processes.device)
