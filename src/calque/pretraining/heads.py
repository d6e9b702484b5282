"""The head of a masked language model: the same three parts in every family, under names of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Dense layer, activation and norm before the output layer; RoBERTa's activation is not a part but in its code.
_PARTS = (
    ("cls.predictions.transform.dense", "cls.predictions.transform.transform_act_fn", "cls.predictions.transform.LayerNorm"),
    ("lm_head.dense", None, "lm_head.layer_norm"),
    ("vocab_transform", "activation", "vocab_layer_norm"),
    ("head.dense", "head.act", "head.norm"),
    ("generator_predictions.dense", "generator_predictions.activation", "generator_predictions.LayerNorm"),
)  # fmt: skip


class Head(NamedTuple):
    """score(v | state) = weight_v · transform(state) + bias_v.

    Attributes:
        transform: from states of the last layer, `[n, dim]` to `[n, inner]`.
        weight: `[n_subwords, inner]`.
        bias: `[n_subwords]`.
    """

    transform: nn.Module
    weight: Tensor
    bias: Tensor


class Transform(nn.Module):
    """norm(activation(dense(state)))."""

    def __init__(self, dense: nn.Module, activation: Callable[[Tensor], Tensor], norm: nn.Module):
        super().__init__()
        self.dense, self.activation, self.norm = dense, activation, norm

    def forward(self, states: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(states)))


def head_of(model: Any) -> Head | None:
    """The head of a masked language model of `transformers`: of BERT, RoBERTa, XLM-R, CamemBERT, DistilBERT, DeBERTa (v2 and
    v3 as published), ModernBERT, ELECTRA's generator, and whatever else is built as one of these; None of any other.

    Its modules are the model's own; weight and bias are those of the output layer.
    """
    output = model.get_output_embeddings()
    known = dict(model.named_modules())
    for dense, activation, norm in _PARTS:
        if isinstance(output, nn.Linear) and {dense, norm} <= known.keys() and (not activation or activation in known):
            activate: Any = known[activation] if activation else F.gelu
            bias = output.weight.new_zeros(len(output.weight)) if output.bias is None else output.bias
            return Head(Transform(known[dense], activate, known[norm]), output.weight, bias)
    return None


def bare_head(embeddings: Tensor, dim: int, counts: Tensor) -> Head:
    """A head for an encoder that has none: its own input embeddings, as most have tied them, behind a dense layer that
    begins as the identity and is learnt; the biases are the logarithms of the subwords' frequencies.

    Args:
        embeddings: `[n_subwords, inner]`.
        dim: of the encoder's states.
        counts: `[n_subwords]`, in the text to learn from.
    """
    dense = nn.Linear(dim, embeddings.shape[1])
    with torch.no_grad():
        dense.weight.copy_(torch.eye(embeddings.shape[1], dim))
        dense.bias.zero_()
    return Head(dense, embeddings, ((counts + 1) / (counts + 1).sum()).log())
