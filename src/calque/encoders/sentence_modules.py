"""What sentence-transformers needs beside an encoder: which layer, how it is pooled, what follows; written and read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from calque.encoders.folder import read_about, write_about
from calque.encoders.sentence_transformers import (
    LAYER_MODULE,
    LIMIT_FILE,
    MODES,
    MODULES_FILE,
    PROMPTS_FILE,
    Recipe,
    listed_modules,
    module_kind,
)
from calque.errors import InputError, SettingError

_VECTOR = "sentence_embedding"  # what sentence-transformers calls it
_ACTIVATIONS = {name: getattr(nn, name) for name in ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid", "SiLU")}


class UnitLength(nn.Module):
    """Vectors of length 1; zero stays zero."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=1)


# -- writing -----------------------------------------------------------------------------------------------------------
def write_modules(
    folder: Path,
    *,
    dim: int,
    max_length: int | None,
    tokenizer: Any = None,
    modes: Sequence[str] = ("mean",),
    after: Iterable[nn.Module] = (),
    lower: bool = False,
    prompt: str = "",
) -> None:
    """Make a folder with an encoder one of sentence-transformers, from version 3 on: `SentenceTransformer(folder)` opens it,
    and calque finds the encoder's own pooling there.

    It reads the encoder's last layer; where another one counts, `write_layer` says so. Half-precision weights are read as
    float32 there, too, as calque reads them.

    Args:
        folder: where `transformers` has saved an encoder and its tokenizer.
        dim: of the encoder's vectors.
        max_length: most subwords of a text, special ones included; None where nothing limits them.
        tokenizer: the one that is saved there. Where it has nothing to pad with, as GPT-2's, another special subword is named.
        modes: how the vectors of subwords become one of the sentence, see `Recipe`.
        after: what this one goes through then: linear layers, each with its activation or without, and `UnitLength`.
        lower: texts are lower-cased first.
        prompt: what stands before each text.

    Raises:
        SettingError: a module that sentence-transformers has not.
    """
    modules: list[tuple[str, str]] = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if [mode for mode in MODES.values() if mode in modes] != list(modes):
        raise SettingError(
            f"pooling modes {', '.join(modes)}, expected some of {', '.join(MODES.values())}, in this order"
        )
    flags = {flag: mode in modes for flag, mode in MODES.items()}
    _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": dim, **flags, "include_prompt": True})
    for part in _steps(after):
        kind = "Normalize" if isinstance(part, UnitLength) else "Dense"
        modules.append((f"{len(modules)}_{kind}", kind))
        place = folder / modules[-1][0]
        place.mkdir(exist_ok=True)
        if not isinstance(part, UnitLength):
            _write_dense(place, *part)
    _write(folder / MODULES_FILE, _numbered(_module(*module) for module in modules))
    limits: dict[str, Any] = {"max_seq_length": max_length, "do_lower_case": lower}
    if _stored_type(folder) != "float32":
        limits["model_args"] = {"torch_dtype": "float32"}  # this name is known to every version
    if tokenizer is not None and tokenizer.pad_token is None and (special := tokenizer.all_special_tokens):
        limits["tokenizer_args"] = {"pad_token": special[-1]}  # attention never sees it
    _write(folder / LIMIT_FILE, limits)
    prompts = {"prompts": {"text": prompt} if prompt else {}, "default_prompt_name": "text" if prompt else None}
    _write(folder / PROMPTS_FILE, {**prompts, "similarity_fn_name": "cosine"})
    if about := read_about(folder):
        write_about(folder, about["kind"], {name: value for name, value in about.items() if name != "own_pooling"})


def write_layer(folder: Path, *, dim: int, layer: int, n_layers: int) -> None:
    """Have sentence-transformers read the layer that counts: if it is not the last, by a mean of layers with weights 1, 0, 0, ….

    Args:
        folder: if it has modules, and one of them names a layer already, that one goes.
        dim: of the encoder's vectors.
        layer: which one counts, from 0, the embedding output.
        n_layers: the last one.
    """
    modules = listed_modules(folder)
    others = [module for module in modules if module_kind(module) != LAYER_MODULE]
    if layer == n_layers or not modules:
        if len(others) < len(modules):
            _write(folder / MODULES_FILE, _numbered(others))
        return
    place = folder / LAYER_MODULE
    _write(
        place / "config.json", {"word_embedding_dimension": dim, "layer_start": layer, "num_hidden_layers": n_layers}
    )
    weights = torch.zeros(n_layers + 1 - layer)
    weights[0] = 1.0
    save_file({"layer_weights": weights}, place / "model.safetensors")
    _write(folder / MODULES_FILE, _numbered([others[0], _module(place.name, LAYER_MODULE), *others[1:]]))
    path = folder / LIMIT_FILE
    limits = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    known = "config_kwargs" if "config_kwargs" in limits else "config_args"
    limits[known] = {**limits.get(known, {}), "output_hidden_states": True}
    _write(path, limits)


def _module(path: str, kind: str) -> dict[str, Any]:
    return {"path": path, "type": f"sentence_transformers.models.{kind}"}


def _numbered(modules: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**module, "idx": k, "name": str(k)} for k, module in enumerate(modules)]


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _stored_type(folder: Path) -> str:
    """Of the weights in a folder, as its configuration names it; float32 where there are none yet."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return str(config.get("dtype") or config.get("torch_dtype") or "float32")


def _steps(after: Iterable[nn.Module]) -> list[UnitLength | tuple[nn.Linear, nn.Module]]:
    """Modules as sentence-transformers cuts them: a linear layer and its activation are one."""
    steps: list[Any] = []
    for module in after:
        if isinstance(module, UnitLength):
            steps.append(module)
        elif isinstance(module, nn.Linear):
            steps.append((module, nn.Identity()))
        elif type(module) in _ACTIVATIONS.values() and steps and isinstance(steps[-1], tuple):
            steps[-1] = steps[-1][0], module
        else:
            raise SettingError(
                f"sentence-transformers has no {type(module).__name__} after its pooling: expected linear layers, each with "
                f"an activation ({', '.join(_ACTIVATIONS)}) or without, and UnitLength"
            )
    return steps


def _write_dense(place: Path, linear: nn.Linear, activation: nn.Module) -> None:
    kind = f"{type(activation).__module__}.{type(activation).__qualname__}"
    _write(place / "config.json", {
        "in_features": linear.in_features, "out_features": linear.out_features, "bias": linear.bias is not None,
        "activation_function": kind,
    })  # fmt: skip
    weights = {f"linear.{name}": weight.detach().float().cpu() for name, weight in linear.named_parameters()}
    save_file({name: weight.contiguous() for name, weight in weights.items()}, place / "model.safetensors")


# -- reading -----------------------------------------------------------------------------------------------------------
def read_after(recipe: Recipe) -> list[nn.Module]:
    """The modules that a folder names after its pooling."""
    return [part for each in recipe.after for part in ([UnitLength()] if isinstance(each, str) else _dense(each))]


def _dense(folder: Path) -> list[nn.Module]:
    """A dense layer of sentence-transformers, and what it goes through then."""
    try:
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        bare = folder / "pytorch_model.bin"
        if (folder / "model.safetensors").is_file():
            weights = load_file(folder / "model.safetensors")
        else:
            weights = torch.load(bare, map_location="cpu", weights_only=True)
        linear = nn.Linear(about["in_features"], about["out_features"], bias=about.get("bias", True))
        linear.load_state_dict({name.removeprefix("linear."): weight.float() for name, weight in weights.items()})
        activation = str(about.get("activation_function") or "torch.nn.Tanh").rpartition(".")[2]
    except Exception as error:  # damaged files fail in every library on the way
        raise InputError(f"not a dense layer of sentence-transformers ({error!s:.200})", path=folder) from error
    if about.get("use_residual") or about.get("module_input_name", _VECTOR) != _VECTOR:
        raise SettingError(
            f"{folder}: a residual connection, or another input than the sentence's vector; take subwords"
        )
    if activation not in _ACTIVATIONS:
        raise SettingError(f"{folder}: activation {activation}, expected one of {', '.join(_ACTIVATIONS)}")
    return [linear, _ACTIVATIONS[activation]()]
