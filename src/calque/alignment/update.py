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

import numpy as np
import torch
from torch import Tensor

from calque.alignment.aligned import AlignedText, Update
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
    """

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

    def backward(self, update: Sequence[np.ndarray]) -> dict[str, float]:
        """Compute the loss and its gradients, see `Objective`.

        Args:
            update: indices of the sentence pairs of each corpus, for all processes.
        """
        processes = self.processes
        parts = self.text.update(
            update,
            budget=self._budget,
            rank=processes.rank,
            world=processes.world,
            accumulate=self._accumulate,
        )
        undivided = len(parts) == 1
        seed = torch.initial_seed()
        passes = [
            self._pass(part, seed + 7919 * i, gradient=undivided) for i, part in enumerate(parts)
        ]
        frozen = [self._frozen(part) for part in parts]
        leaves = [
            {layer: rows.requires_grad_() for layer, rows in done.vectors.items()}
            for done in passes
        ]
        terms: dict[str, Tensor] = {}
        for layer in self.layers:
            for number in range(len(parts[0].groups)):
                found = self._loss(self._batch(parts, leaves, frozen, layer, number))
                for name, value in (
                    {"align": found} if isinstance(found, Tensor) else found
                ).items():
                    terms[name] = terms[name] + value if name in terms else value
        torch.stack(list(terms.values())).sum().backward()
        for i, part in enumerate(parts):
            done = passes[i] if undivided else self._pass(part, seed + 7919 * i)
            done.backward(
                {layer: rows.grad for layer, rows in leaves[i].items() if rows.grad is not None}
            )
        # Every process has all vectors and computes the same loss, but backpropagates only through
        # its own vectors.
        values = torch.stack([value.detach() for value in terms.values()])
        return {"loss": float(values.sum()), **dict(zip(terms, values.tolist(), strict=True))}

    def _pass(self, part: Update, seed: int, *, gradient: bool = True) -> Pass:
        """Run the forward pass over the sentences of a part."""
        torch.manual_seed(seed)  # both forward passes of a part must use the same dropout masks
        return self._pass_of(self.encoder, part.batches, gradient)

    def _frozen(self, part: Update) -> dict[int, Tensor]:
        """Return the frozen encoder's word vectors of a part's target sentences."""
        return (
            {}
            if self.reference is None
            else self._pass_of(self.reference, part.target_batches, False).vectors
        )

    def _pass_of(
        self, encoder: TrainableEncoder, batches: Sequence[np.ndarray], gradient: bool
    ) -> Pass:
        collated = [collate(self.text.table, batch).to(self.processes.device) for batch in batches]
        return Pass(
            encoder, collated, self.layers, context=self.processes.autocast, gradient=gradient
        )

    def _batch(
        self,
        parts: list[Update],
        leaves: list[dict[int, Tensor]],
        frozen: list[dict[int, Tensor]],
        layer: int,
        number: int,
    ) -> LinkedBatch:
        """Return the vectors of one text and layer, ordered by process rank and then by part."""
        rows, vectors = [part.groups[number] for part in parts], [leaf[layer] for leaf in leaves]

        def of_all(found: Sequence[Tensor], counts: tuple[int, ...]) -> Tensor:
            by_process = (
                np.array(counts, dtype=np.int64)
                .reshape(self.processes.world, -1)
                .sum(axis=1)
                .tolist()
            )
            return self.processes.gather_rows(torch.cat(list(found)), by_process)

        def gather(name: str, counts: tuple[int, ...], of: Sequence[Tensor] = vectors) -> Tensor:
            places = [self._index(getattr(group, name)) for group in rows]
            return of_all(
                [each.index_select(0, at) for each, at in zip(of, places, strict=True)], counts
            )

        def before(name: str, counts: tuple[int, ...]) -> Tensor | None:
            return (
                None
                if self.reference is None
                else gather(name, counts, [each[layer] for each in frozen])
            )

        def means(side: int) -> Tensor:
            found = []
            for each, group in zip(vectors, rows, strict=True):
                words = group.sentences[side]  # type: ignore[index]
                counts = self._index(words.counts)
                sums = each.new_zeros(len(counts), each.shape[1])
                sums = sums.index_add(
                    0, self._index(words.owner), each.index_select(0, self._index(words.rows))
                )
                found.append(sums / counts.clamp(min=1)[:, None])
            return of_all(found, rows[0].sentences_of_part)

        pairs, words = rows[0].pairs_of_part, rows[0].words_of_part
        kinds = [self._index(group.kinds)[:, None] for group in rows if group.kinds is not None]
        return LinkedBatch(
            gather("source", pairs),
            gather("target", pairs),
            gather("regularised", words),
            before("reference", words),
            before("reference_linked", pairs),
            kinds=of_all(kinds, pairs).squeeze(1) if kinds else None,
            sentences=None if rows[0].sentences is None else (means(0), means(1)),
        )

    def _index(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(self.processes.device)
