"""Fold standardised vectors into the last normalisation layer of a model, for other programs.

A standardised vector is (x − μ) / σ in each dimension, and x is the output of a LayerNorm with scale
γ and bias β (Ba et al. 2016, "Layer normalization", Eq. 4) if the layer is the last one of a model
such as BERT, XLM-R or ModernBERT. The same LayerNorm with γ' = γ / σ and β' = (β − μ) / σ computes
the standardised vector itself, so every program that opens the model reads standardised vectors.

calque does not compute with the folded weights. It restores γ and β, which are saved beside μ and
σ, so that the vectors of a saved encoder do not change by rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from calque.encoders.batches import WordBatch
from calque.encoders.layers import all_states, encoder_of
from calque.errors import InputError

#: prefix of the names under which the weights before folding are saved
UNFOLDED = "unfolded."


class NormWeights(NamedTuple):
    """Scale γ and bias β of a LayerNorm, each float32 `[dim]`; β is None for a norm without bias."""

    scale: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, norm: nn.LayerNorm) -> NormWeights:
        """Return a copy of the weights of a norm, on the CPU."""
        bias = None if norm.bias is None else norm.bias.detach().cpu().clone()
        return cls(norm.weight.detach().cpu().clone(), bias)

    def folded(self, standard: Tensor) -> NormWeights:
        """Return γ / σ and (β − μ) / σ.

        Args:
            standard: means μ and standard deviations σ, `[2, dim]`.
        """
        mean, deviation = standard.double()
        bias = torch.zeros_like(mean) if self.bias is None else self.bias.double()
        scale = self.scale.double() / deviation
        return NormWeights(scale.float(), ((bias - mean) / deviation).float())

    def arrays(self) -> dict[str, Tensor]:
        """Return the weights under the names with which they are saved."""
        arrays = {f"{UNFOLDED}scale": self.scale}
        if self.bias is not None:
            arrays[f"{UNFOLDED}bias"] = self.bias
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> NormWeights:
        """Return weights that `arrays` named; raise KeyError if the scale is missing."""
        return cls(arrays[f"{UNFOLDED}scale"], arrays.get(f"{UNFOLDED}bias"))


def last_norm(model: PreTrainedModel, batch: WordBatch) -> str | None:
    """Return the name of the float32 LayerNorm whose output is the last hidden state of a model, or
    None if folding into it would not be exact.

    It would not be exact for RMSNorm, which has no bias (Gemma, T5), for a norm that the model
    applies several times, for half precision, and if a projection follows the norm.
    """
    calls: list[tuple[str, Tensor]] = []  # in the order of the forward pass

    def keeping(name: str):
        def keep(module: nn.Module, args: object, output: Tensor) -> None:
            calls.append((name, output))

        return keep

    norms = {name: part for name, part in model.named_modules() if type(part) is nn.LayerNorm}
    hooks = [part.register_forward_hook(keeping(name)) for name, part in norms.items()]
    try:
        with torch.inference_mode():
            output = encoder_of(model)(
                input_ids=batch.input_ids, attention_mask=batch.attention_mask
            ).last_hidden_state
    finally:
        for hook in hooks:
            hook.remove()
    if not calls:
        return None
    name, last = calls[-1]
    norm = norms[name]
    is_only_call = [each for each, _ in calls].count(name) == 1
    if not is_only_call or last.shape != output.shape or not torch.equal(last, output):
        return None
    with torch.inference_mode():
        is_last_layer = torch.equal(all_states(model, batch)[-1], output)
    if not is_last_layer or norm.weight is None or norm.weight.dtype != torch.float32:
        return None
    if norm.bias is None and not _can_have_bias(model):
        return None
    return name


def _can_have_bias(model: PreTrainedModel) -> bool:
    """Return whether a switch in the configuration gives every norm a bias, as in ModernBERT."""
    return getattr(model.config, "norm_bias", None) is False


@contextmanager
def folded(model: PreTrainedModel, name: str, standard: Tensor) -> Iterator[NormWeights]:
    """Fold standardisation into the norm called `name` inside the `with` block, in which the model
    can be saved; yield the weights before folding.

    If the norms of a model have no bias, the configuration is changed so that all of them have one,
    which is 0 except in the folded norm.

    Args:
        standard: means and standard deviations, `[2, dim]`.
    """
    norm = cast("nn.LayerNorm", model.get_submodule(name))
    before = NormWeights.of(norm)
    if before.bias is None:
        _add_biases(model)
    _set(norm, before.folded(standard))
    try:
        yield before
    finally:
        if before.bias is None:
            _remove_biases(model)
        _set(norm, before)


def unfold(
    model: PreTrainedModel, name: str, standard: Tensor, before: NormWeights, path: Path
) -> None:
    """Restore the weights of a folded norm in a model that was loaded from a folder.

    Raises:
        InputError: there is no such norm, or its weights were changed after they were folded, for
            example by training in another program.
    """
    remedy = "to read the folder as an ordinary encoder, delete its calque.json"
    try:
        norm = cast("nn.LayerNorm", model.get_submodule(name))
    except AttributeError as error:
        fact = f"the model has no layer {name}, which contains the standardisation"
        raise InputError(f"{fact}; {remedy}", path=path) from error
    expected = before.folded(standard)
    if not _holds(norm, expected):
        fact = f"the weights of {name}, which contain the standardisation, have changed"
        raise InputError(f"{fact} since calque saved them; {remedy}", path=path)
    if before.bias is None:
        _remove_biases(model)
    _set(norm, before)


def _holds(norm: nn.LayerNorm, expected: NormWeights) -> bool:
    """Return whether a norm has the expected weights, converted to its type."""
    if norm.bias is None or expected.bias is None:
        return False
    same_scale = torch.equal(norm.weight.cpu(), expected.scale.to(norm.weight.dtype))
    return same_scale and torch.equal(norm.bias.cpu(), expected.bias.to(norm.bias.dtype))


@torch.no_grad()
def _set(norm: nn.LayerNorm, weights: NormWeights) -> None:
    """Copy weights into a norm."""
    norm.weight.copy_(weights.scale)
    if weights.bias is not None:
        norm.bias.copy_(weights.bias)


def _add_biases(model: PreTrainedModel) -> None:
    """Give each norm without a bias a bias of 0."""
    model.config.norm_bias = True
    for part in model.modules():
        if type(part) is nn.LayerNorm and part.bias is None:
            zeros = torch.zeros_like(part.weight)
            part.register_parameter("bias", nn.Parameter(zeros, requires_grad=False))


def _remove_biases(model: PreTrainedModel) -> None:
    """Remove the biases that `_add_biases` added."""
    model.config.norm_bias = False
    for part in model.modules():
        if type(part) is nn.LayerNorm:
            part.register_parameter("bias", None)
