"""Word vectors out of a model, and gradients of word vectors back into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from calque.encoders.batches import WordBatch
from calque.encoders.trainable import TrainableEncoder

LayerRows = dict[int, Tensor]


class Pass:
    """A forward pass over some sentences, and its backward pass.

    Args:
        encoder: its model is in training or evaluation mode.
        batches: of sentences. Without any there are no vectors, and nothing to learn.
        context: entered for the forward computation, such as autocast.
        gradient: whether there will be a backward pass.

    Attributes:
        vectors: `{layer: [W, dim]}`, float32, the words of all batches one after the other; not part of any graph.
    """

    def __init__(
        self,
        encoder: TrainableEncoder,
        batches: Sequence[WordBatch],
        layers: Sequence[int],
        *,
        context: Callable[[], AbstractContextManager] = nullcontext,
        gradient: bool = True,
    ):
        graph: LayerRows
        if batches:
            with torch.set_grad_enabled(gradient), context():
                graph = {layer: rows.float() for layer, rows in encoder.forward(batches, layers).items()}
        else:  # a process, or a part of an update, that has no sentence
            nothing = torch.zeros(0, encoder.dim, device=encoder.device)
            graph = dict.fromkeys(layers, nothing)
        self.vectors: LayerRows = {layer: graph[layer].detach() for layer in layers}
        self._graph: LayerRows = graph if gradient else {}

    def backward(self, gradients: LayerRows) -> None:
        """Add the gradient in the weights to theirs.

        Args:
            gradients: `{layer: [W, dim]}` in the vectors; a layer that is left out has none. Layers below everything
                that is trained are passed over.
        """
        found = {layer: rows for layer, rows in gradients.items() if self._graph[layer].requires_grad}
        if found:
            torch.autograd.backward([self._graph[layer] for layer in found], list(found.values()))  # type: ignore[arg-type]
