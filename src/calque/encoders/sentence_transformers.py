"""Read and write the modules of sentence-transformers folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from calque.encoders.checkpoint import hub_folder
from calque.encoders.folder import read_about, write_about
from calque.errors import InputError, SettingError
from calque.storage import json_text

MODULES_FILE = "modules.json"
LIMIT_FILE, PROMPTS_FILE = "sentence_bert_config.json", "config_sentence_transformers.json"
#: name and folder of the module that selects a layer other than the last
LAYER_MODULE = "WeightedLayerPooling"
#: pooling flags of sentence-transformers before version 6, in the order of concatenation, with the names used since version 6
MODES = {
    "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max", "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # fmt: skip
_VECTOR = "sentence_embedding"  # name of the sentence vector in sentence-transformers
_ACTIVATIONS = {name: getattr(nn, name) for name in ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid", "SiLU")}


class UnitLength(nn.Module):
    """Module that L2-normalises vectors; a zero vector stays zero."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=1)


# -- reading -----------------------------------------------------------------------------------------------------------
def modules_of(folder: Path) -> list[dict[str, Any]]:
    """Return the modules of a sentence-transformers folder, with the encoder first; the list is empty for other folders."""
    try:
        modules = json.loads((folder / MODULES_FILE).read_text(encoding="utf-8"))
        paths = [str(module["path"]) for module in modules]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if not paths or paths[0] not in ("", "."):
        return []
    for path in paths[1:]:
        _check_within(folder, Path(path))
    return modules if any((folder / path).is_dir() for path in paths[1:]) else []


def own_modules(name: str, about: Mapping[str, Any]) -> Path | None:
    """Return the local folder with the modules of an encoder's own pooling, or None if there are no such modules.

    Modules that calque added for other programs are ignored. `about` is the content of `calque.json`.
    """
    folder: Path | None = Path(name)
    if not Path(name).is_dir():
        parts = ["*.json", "*/config.json", "*/model.safetensors", "*/pytorch_model.bin"]
        folder = hub_folder(name, MODULES_FILE, parts)
    return folder if folder is not None and about.get("own_pooling", True) and modules_of(folder) else None


def copy_modules(source: Path, target: Path) -> None:
    """Copy the list of modules, and the folders of all modules except the encoder, to another folder."""
    # Modules without parameters may have no folder.
    places = [path for module in modules_of(source)[1:] if (source / (path := str(module["path"]))).is_dir()]
    for file in (file for place in places for file in (source / place).rglob("*")):
        _check_within(source, file.relative_to(source))
    for name in (MODULES_FILE, PROMPTS_FILE, LIMIT_FILE):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    for place in places:
        shutil.copytree(source / place, target / place, dirs_exist_ok=True)


def read_recipe(folder: Path) -> dict[str, Any]:
    """Return the modules of a folder as arguments for `SentencePooling`; raise SettingError for an unsupported module."""
    modes: tuple[str, ...] = ()
    after: list[nn.Module] = []
    without_prompt = False
    for module in modules_of(folder)[1:]:
        place, kind = folder / str(module["path"]), module_kind(module)
        if kind == "Pooling" and not modes:
            about = _object(place / "config.json")
            modes, without_prompt = _pooling_modes(about), not about.get("include_prompt", True)
        elif kind == "Dense" and modes:
            after += _dense(place)
        elif kind == "Normalize" and modes:
            after.append(UnitLength())
        elif kind != "Dropout" and not (kind == LAYER_MODULE and read_about(folder)):
            # Dropout has no effect at inference. In folders saved by calque, the layer is read from calque.json instead.
            fact = f"{folder}: the module {kind or place.name} is not supported (only Pooling, then Dense or Normalize)"
            raise SettingError(f"{fact}; set the sentence pooling to words, subwords or cls")
    if not modes:
        raise SettingError(f"{folder}: {MODULES_FILE} lists no Pooling module; set pooling to words, subwords or cls")
    limits, settings = _object(folder / LIMIT_FILE, {}), _object(folder / PROMPTS_FILE, {})
    prompts, limit = settings.get("prompts") or {}, limits.get("max_seq_length")
    if not isinstance(prompts, dict):
        raise InputError(f"prompts must map names to strings, got {prompts!r:.60}", path=folder / PROMPTS_FILE)
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise InputError(f"max_seq_length must be a positive integer, got {limit!r:.60}", path=folder / LIMIT_FILE)
    prompt = str(prompts.get(str(settings.get("default_prompt_name")), ""))
    if prompt and without_prompt:
        fact = f"{folder}: excluding the prompt {prompt!r} from the mean is not supported"
        raise SettingError(f"{fact}; set the sentence pooling to subwords")
    lower = bool(limits.get("do_lower_case"))
    return {"modes": modes, "after": after, "max_length": limit, "lower": lower, "prompt": prompt}


def _pooling_modes(about: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the pooling modes of a configuration. Before version 6, sentence-transformers saved flags instead of names."""
    named = about.get("pooling_mode")
    listed = named if isinstance(named, list) else [named] if named else []
    modes = tuple(listed or (mode for flag, mode in MODES.items() if about.get(flag))) or ("mean",)
    if unknown := [mode for mode in modes if mode not in MODES.values()]:
        raise SettingError(f"pooling mode must be one of {', '.join(MODES.values())}, got {unknown[0]!r}")
    return modes


def _dense(folder: Path) -> list[nn.Module]:
    """Load a sentence-transformers dense layer and its activation."""
    try:
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if (folder / "model.safetensors").is_file():
            weights = load_file(folder / "model.safetensors")
        else:
            weights = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
        linear = nn.Linear(about["in_features"], about["out_features"], bias=about.get("bias", True))
        linear.load_state_dict({name.removeprefix("linear."): weight.float() for name, weight in weights.items()})
        activation = str(about.get("activation_function") or "torch.nn.Tanh").rpartition(".")[2]
    except Exception as error:  # corrupt files raise exceptions from several libraries
        raise InputError(f"not a sentence-transformers dense layer ({error!s:.200})", path=folder) from error
    if about.get("use_residual") or about.get("module_input_name", _VECTOR) != _VECTOR:
        raise SettingError(f"{folder}: residual connections and inputs other than sentence vectors are not supported")
    if activation not in _ACTIVATIONS:
        raise SettingError(f"{folder}: the activation must be one of {', '.join(_ACTIVATIONS)}, got {activation}")
    return [linear, _ACTIVATIONS[activation]()]


def _object(path: Path, otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON object in a file, or `otherwise` if the file does not exist."""
    if otherwise is not None and not path.is_file():
        return otherwise
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"not a JSON object as written by sentence-transformers ({error})", path=path) from error


def module_kind(module: Mapping[str, Any]) -> str:
    """Return the class name of a module without the import path, which depends on the library's version."""
    return str(module.get("type", "")).rpartition(".")[2]


def _check_within(folder: Path, name: Path) -> None:
    """Check that the resolved path of a module or file is inside the folder. Files from the hub are symbolic links to `blobs`."""
    root = folder.resolve()
    root = root.parents[1] if root.parent.name == "snapshots" else root
    place = (folder / name).resolve()
    if not name.parts or ".." in name.parts or name.is_absolute() or root not in place.parents:
        fact = f"the path of the module {str(name)!r:.60} is outside this folder; modules must be in subfolders"
        raise InputError(fact, path=folder / MODULES_FILE)


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
    """Add sentence-transformers modules (for version 3 or later) to the folder of an encoder and its tokenizer.

    The modules use the last layer; `write_layer` selects another layer. Half-precision weights are loaded as float32, as in
    calque. If a tokenizer has no padding token, as in GPT-2, another special token is used for padding.

    Args:
        max_length: maximum number of subwords in a text, including special tokens, or None.
        modes: pooling modes in the order of `MODES`; the vectors of several modes are concatenated.
        after: modules that follow the pooling: linear layers with optional activations, and `UnitLength`.
        lower, prompt: whether to lower-case texts, and a prompt to put before each text.
    """
    names = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if [mode for mode in MODES.values() if mode in modes] != list(modes):
        known = ", ".join(MODES.values())
        raise SettingError(f"pooling modes must be among {known} and in this order, got {', '.join(modes)}")
    flags = {flag: mode in modes for flag, mode in MODES.items()}
    _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": dim, **flags, "include_prompt": True})
    parts = list(after)
    while parts:
        part = parts.pop(0)
        if not isinstance(part, nn.Linear | UnitLength):
            kinds = f"linear layers, each with or without an activation ({', '.join(_ACTIVATIONS)}), and UnitLength"
            fact = f"sentence-transformers does not support {type(part).__name__} after the pooling"
            raise SettingError(f"{fact}; use only {kinds}")
        kind = "Dense" if isinstance(part, nn.Linear) else "Normalize"
        names.append((f"{len(names)}_{kind}", kind))
        if isinstance(part, nn.Linear):  # a linear layer and its activation form one module
            activation = parts.pop(0) if parts and type(parts[0]) in _ACTIVATIONS.values() else nn.Identity()
            _write_dense(folder / names[-1][0], part, activation)
    write_list(folder, names)
    limits: dict[str, Any] = {"max_seq_length": max_length, "do_lower_case": lower}
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if (config.get("dtype") or config.get("torch_dtype") or "float32") != "float32":
        limits["model_args"] = {"torch_dtype": "float32"}  # every transformers version accepts this key
    if tokenizer is not None and tokenizer.pad_token is None and (special := tokenizer.all_special_tokens):
        limits["tokenizer_args"] = {"pad_token": special[-1]}  # any token works, because padding is masked
    _write(folder / LIMIT_FILE, limits)
    prompts = {"prompts": {"text": prompt} if prompt else {}, "default_prompt_name": "text" if prompt else None}
    _write(folder / PROMPTS_FILE, {**prompts, "similarity_fn_name": "cosine"})
    if about := read_about(folder):
        write_about(folder, about["kind"], {name: value for name, value in about.items() if name != "own_pooling"})


def write_layer(folder: Path, *, dim: int, layer: int, n_layers: int) -> None:
    """Make sentence-transformers use `layer` by adding a module that selects this layer, unless it is the last (`n_layers`)."""
    modules = modules_of(folder)
    names = [(str(module["path"]), module_kind(module)) for module in modules if module_kind(module) != LAYER_MODULE]
    if not modules or (layer == n_layers and len(names) == len(modules)):
        return
    if layer != n_layers:
        names.insert(1, (LAYER_MODULE, LAYER_MODULE))
        place, weights = folder / LAYER_MODULE, torch.zeros(n_layers + 1 - layer)
        weights[0] = 1.0
        about = {"word_embedding_dimension": dim, "layer_start": layer, "num_hidden_layers": n_layers}
        _write(place / "config.json", about)
        save_file({"layer_weights": weights}, place / "model.safetensors")
        limits = _object(folder / LIMIT_FILE, {})
        known = "config_kwargs" if "config_kwargs" in limits else "config_args"
        limits[known] = {**limits.get(known, {}), "output_hidden_states": True}
        _write(folder / LIMIT_FILE, limits)
    write_list(folder, names)


def write_list(folder: Path, modules: Iterable[tuple[str, str]]) -> None:
    """Write `modules.json` from pairs of a module's folder and class name, and create the folders."""
    rows = [
        {"idx": k, "name": str(k), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for k, (place, kind) in enumerate(modules)
    ]
    for row in rows:
        (folder / row["path"]).mkdir(exist_ok=True)
    _write(folder / MODULES_FILE, rows)


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json_text(content, undefined="refuse", indent=2) + "\n", encoding="utf-8")


def _write_dense(place: Path, linear: nn.Linear, activation: nn.Module) -> None:
    kind = f"{type(activation).__module__}.{type(activation).__qualname__}"
    _write(place / "config.json", {
        "in_features": linear.in_features, "out_features": linear.out_features, "bias": linear.bias is not None,
        "activation_function": kind,
    })  # fmt: skip
    weights = {f"linear.{name}": weight.detach().float().cpu() for name, weight in linear.named_parameters()}
    save_file({name: weight.contiguous() for name, weight in weights.items()}, place / "model.safetensors")
