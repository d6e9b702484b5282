"""Word vectors out of a model, and gradients of word vectors back into it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from calque.encoders.batches import WordBatch
from calque.encoders.trainable import TrainableEncoder
from calque.threads import Threads

LayerRows = dict[int, Tensor]
Share = Sequence[WordBatch]
_MOST_SHARES = 8  # of the few dozen sentences of an update; further cores go to the operations inside
_GRADIENTS = 2_000_000_000  # bytes


def shares_at_once(encoder: TrainableEncoder, device: torch.device) -> int:
    """Into how many shares a pass over this encoder is best cut: one for each core, where they can be gone through
    side by side; fewer for a large model, since each share has gradients of its own.

    That is on the processor, for a model that works in two steps, and without dropout unless it follows a key: random
    numbers that several threads draw from one source would not be the same twice.
    """
    drops = any(isinstance(module, nn.Dropout) and module.p > 0 for module in encoder.model.modules())
    flat = isinstance(encoder, TrainableEncoder) and encoder.is_flat()
    if device.type != "cpu" or not flat or (drops and not encoder.keyed_dropout()):
        return 1
    weights = sum(p.numel() for p in encoder.model.encoder.parameters())
    return max(1, min(torch.get_num_threads(), _MOST_SHARES, _GRADIENTS // (4 * weights)))


class Pass:
    """One pass over some sentences, and the way back.

    Args:
        encoder: its model is in training or evaluation mode.
        shares: batches of sentences; with several shares each is gone through in a thread of its own, and there must
            not be more of them than `shares_at_once` says. Without any there are no vectors, and nothing to learn.
        layers: whose word vectors are wanted.
        threads: for the shares.
        context: entered for every forward computation, such as autocast.
        gradient: whether there will be a way back.

    Attributes:
        vectors: `{layer: [W, dim]}`, float32, the words of all shares one after the other; not part of any graph.
    """

    def __init__(
        self,
        encoder: TrainableEncoder,
        shares: Sequence[Share],
        layers: Sequence[int],
        *,
        threads: Threads,
        context: Callable[[], AbstractContextManager] = nullcontext,
        gradient: bool = True,
    ):
        self._threads, self._context, self._gradient = threads, context, gradient
        self._side_by_side = len(shares) > 1
        if not shares:  # a process, or a part of an update, that has no sentence
            nothing = torch.zeros(0, encoder.dim, device=next(encoder.model.parameters()).device)
            self._graphs: list[LayerRows] = [dict.fromkeys(layers, nothing)]
        elif self._side_by_side:
            self._graphs = self._forward_in_shares(encoder, shares, layers)
        else:
            self._graphs = [self._forward(lambda: encoder.forward(shares[0], layers))]
        self.vectors: LayerRows = {
            layer: torch.cat([graph[layer].detach() for graph in self._graphs]) for layer in layers
        }
        if not gradient:
            self._graphs = []

    def _forward(self, vectors: Callable[[], LayerRows]) -> LayerRows:
        # Both contexts belong to the thread that enters them.
        with torch.set_grad_enabled(self._gradient), self._context():
            return {layer: rows.float() for layer, rows in vectors().items()}

    def _forward_in_shares(self, encoder, shares: Sequence[Share], layers) -> list[LayerRows]:
        """The embeddings, whose gradient is as large as the vocabulary, for all at once; the layers in threads."""
        everything = [batch for share in shares for batch in share]
        with torch.set_grad_enabled(self._gradient), self._context():
            embedded = encoder.embedded(everything)
        sizes = [sum(batch.n_subwords for batch in share) for share in shares]
        self._embedded = embedded
        self._bottoms = [rows.requires_grad_(embedded.requires_grad) for rows in embedded.detach().split(sizes)]
        below = set(map(id, encoder.model.embeddings.parameters()))
        self._weights = [p for p in encoder.model.parameters() if p.requires_grad and id(p) not in below]

        keyed: list[dict[str, int]] = [{} for _ in shares]
        settled = encoder.settled(layers, each=self._threads.map)  # until the way back is through
        if settled.keyed_dropout():  # drawn here, by one thread
            keyed = [{"key": key} for key in torch.randint(2**32, (len(shares),)).tolist()]

        def work(number: int) -> LayerRows:
            return self._forward(lambda: settled.above(self._bottoms[number], shares[number], layers, **keyed[number]))

        return self._threads.map(work, range(len(shares)))

    def backward(self, gradients: LayerRows) -> None:
        """Add the gradient in the weights to theirs.

        Args:
            gradients: `{layer: [W, dim]}` in the vectors; a layer that is left out has none. Layers below everything
                that is trained are passed over.
        """
        gradients = {layer: rows for layer, rows in gradients.items() if self._graphs[0][layer].requires_grad}
        if not gradients:
            return
        if not self._side_by_side:
            (graph,) = self._graphs
            torch.autograd.backward([graph[n] for n in gradients], list(gradients.values()))  # type: ignore[misc]
            return
        sizes = [len(next(iter(graph.values()))) for graph in self._graphs]
        parts = {layer: rows.split(sizes) for layer, rows in gradients.items()}
        bottoms = [rows for rows in self._bottoms if rows.requires_grad]

        def work(number: int) -> tuple[Tensor | None, ...]:
            graph = self._graphs[number]
            return torch.autograd.grad(
                [graph[layer] for layer in parts],
                [*bottoms[number : number + 1], *self._weights],
                [rows[number] for rows in parts.values()],
                allow_unused=True,
            )

        gradients_of = self._threads.map(work, range(len(self._graphs)))
        if bottoms:
            pieces = [
                torch.zeros_like(bottom) if share[0] is None else share[0]
                for bottom, share in zip(bottoms, gradients_of, strict=True)
            ]
            torch.autograd.backward(self._embedded, torch.cat(pieces))
            gradients_of = [share[1:] for share in gradients_of]
        add_gradients(self._weights, gradients_of)


def add_gradients(weights: Sequence[Tensor], shares: Sequence[Sequence[Tensor | None]]) -> None:
    """Add to the gradients of some weights those of each share, always in the same order."""
    if not shares:
        return
    for weight, gradients in zip(weights, zip(*shares, strict=True), strict=True):
        present = [gradient for gradient in gradients if gradient is not None]
        if present:
            total = functools.reduce(torch.add, present)
            weight.grad = total if weight.grad is None else weight.grad.add_(total)
