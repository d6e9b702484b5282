"""Learned mixture of the layers of an encoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class ScalarMix(nn.Module):
    """Weighted sum of the vectors of several layers, γ Σ_j softmax(s)_j h_j (Peters et al. 2018,
    "Deep contextualized word representations", Eq. 1).

    The scores s and the factor γ are trained together with a task head. All layers start with equal
    weights, and γ starts at 1.

    The paper applies layer normalisation to each layer before the sum as an option. It is on by
    default here, because layers of transformers differ in the norm of their vectors, in decoders by
    factors above 100, and without it the layer with the longest vectors decides the sum whatever
    its weight.

    Args:
        n_layers: number of layers.
        dim: number of dimensions of a vector.
        layer_norm: whether to normalise each vector h_j to mean 0 and variance 1 before the sum.
    """

    def __init__(self, n_layers: int, dim: int, *, layer_norm: bool = True):
        super().__init__()
        self.n_layers, self.dim, self.layer_norm = n_layers, dim, layer_norm
        self.scores = nn.Parameter(torch.zeros(n_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def weights(self) -> Tensor:
        """Return the weight of each layer, softmax(s), `[n_layers]`."""
        return torch.softmax(self.scores, dim=0)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the mixed vectors, `[W, dim]`.

        Args:
            rows: vectors of all layers side by side, `[W, n_layers * dim]`.
        """
        layers = rows.view(len(rows), self.n_layers, self.dim)
        if self.layer_norm:
            layers = functional.layer_norm(layers, (self.dim,))
        return self.gamma * torch.einsum("l,wld->wd", self.weights(), layers)
