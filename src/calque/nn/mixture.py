"""Learned mixture of the layers of an encoder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

#: normalisation of the layers before they are mixed, see `ScalarMix`
Norm = Literal["standard", "layer", "none"]


class ScalarMix(nn.Module):
    """Weighted sum of the vectors of several layers, γ Σ_j softmax(s)_j h_j (Peters et al. 2018,
    "Deep contextualized word representations", Eq. 1).

    The scores s and the factor γ are trained together with a task head. All layers start with equal
    weights, and γ starts at 1.

    The paper mixes the layers as they are ("none") or applies layer normalisation to each vector
    h_j first ("layer"). Neither is enough for decoders. In Gemma 3, the mean norm of the layers
    ranges from 26 to 20,000, so without normalisation the layers with the longest vectors decide
    the sum. In most of its layers, one dimension has over 80% of the squared length, and layer
    normalisation leaves it so. By default ("standard"), each dimension is therefore standardised
    after the layer normalisation, with its mean and standard deviation in the training text.

    Args:
        n_layers: number of layers.
        dim: number of dimensions of a vector.
        norm: normalisation before the sum. For "standard", `measure` must be called first.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, n_layers: int, dim: int, *, norm: Norm = "standard"):
        super().__init__()
        self.n_layers, self.dim, self.norm = n_layers, dim, norm
        self.scores = nn.Parameter(torch.zeros(n_layers))
        self.gamma = nn.Parameter(torch.ones(()))
        # Mean and standard deviation of each dimension, which are constants in training.
        self.register_buffer("mean", torch.zeros(n_layers, dim))
        self.register_buffer("deviation", torch.ones(n_layers, dim))

    def weights(self) -> Tensor:
        """Return the weight of each layer, softmax(s), `[n_layers]`."""
        return torch.softmax(self.scores, dim=0)

    @torch.no_grad()
    def measure(self, batches: Iterable[Tensor]) -> None:
        """Set the mean and the standard deviation of each dimension for the norm "standard".

        Args:
            batches: vectors of all layers side by side in the training text, each `[W, n_layers *
                dim]`.
        """
        n_words = 0
        sums = torch.zeros_like(self.mean, dtype=torch.float64)
        squares = torch.zeros_like(sums)
        for rows in batches:
            # Layer normalisation keeps the values near 1, so the sum of squares loses no digits.
            layers = self._layer_normed(rows).double()
            n_words += len(layers)
            sums += layers.sum(0)
            squares += layers.square().sum(0)
        mean = sums / n_words
        # The bound applies to dimensions that are constant in the training text.
        deviation = (squares / n_words - mean.square()).clamp(min=1e-10).sqrt()
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the mixed vectors, `[W, dim]`.

        Args:
            rows: vectors of all layers side by side, `[W, n_layers * dim]`.
        """
        if self.norm == "none":
            layers = rows.view(len(rows), self.n_layers, self.dim)
        else:
            layers = self._layer_normed(rows)
        if self.norm == "standard":
            layers = (layers - self.mean) / self.deviation
        return self.gamma * torch.einsum("l,wld->wd", self.weights(), layers)

    def _layer_normed(self, rows: Tensor) -> Tensor:
        """Return the vectors of all layers with mean 0 and variance 1, `[W, n_layers, dim]`."""
        layers = rows.view(len(rows), self.n_layers, self.dim)
        return functional.layer_norm(layers, (self.dim,))
