"""Read and write the modules of sentence-transformers folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from calque.encoders.checkpoint import read_tensors
from calque.encoders.folder import read_about, write_about
from calque.encoders.sentence_folders import (
    MODULES_FILE,
    check_within,
    model_folder,
    module_kind,
    modules_folder,
    modules_of,
)
from calque.encoders.sentence_settings import (
    LIMIT_FILE,
    LIMIT_FILES,
    PROMPTS_FILE,
    not_supported,
    read_model_settings,
    read_object,
    read_text_settings,
    without_config,
)
from calque.errors import InputError, SettingError
from calque.storage import JsonObject, json_text

#: name and folder of the module that selects a layer other than the last
LAYER_MODULE = "WeightedLayerPooling"
#: pooling flags of sentence-transformers before version 6, in the order of concatenation, with the
#: names used since version 6
MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
#: module that maps subword vectors by language; see `calque.integrations.sentence_modules`
MAPPED_MODULE = "calque.integrations.sentence_modules.MappedTransformer"
_VECTOR = "sentence_embedding"  # name of the sentence vector in sentence-transformers
# settings of a dense layer
_OF_DENSE = {
    "in_features",
    "out_features",
    "bias",
    "activation_function",
    "module_input_name",
    "module_output_name",
    "use_residual",
}
_ACTIVATIONS = {
    name: getattr(nn, name) for name in ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid", "SiLU")
}


class UnitLength(nn.Module):
    """Module that L2-normalises vectors; a zero vector stays zero."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=1)


# -- reading ---------------------------------------------------------------------------------------
def own_modules(name: str, about: Mapping[str, object]) -> Path | None:
    """Return the local folder with the modules of an encoder's own pooling, or None if there are no
    such modules.

    Modules that calque added for other programs are ignored. `about` is the content of
    `calque.json`.
    """
    return modules_folder(name) if about.get("own_pooling", True) else None


def copy_modules(source: Path, target: Path, *, keep_config: bool = False) -> None:
    """Copy the list of modules, and the folders of all modules except the encoder, to another
    folder.

    Args:
        keep_config: whether to copy changes of the model's configuration, for a folder without a
            configuration of its own.
    """
    modules = modules_of(source)
    # Modules without parameters may have no folder.
    paths = [str(module["path"]) for module in modules[1:]]
    places = [path for path in paths if (source / path).is_dir()]
    # No file is copied through a symbolic link that leads out of the folder.
    for place in places:
        for file in (source / place).rglob("*"):
            check_within(source, file.relative_to(source))
    inner = model_folder(source)
    if inner == source:
        shutil.copyfile(source / MODULES_FILE, target / MODULES_FILE)
    else:  # the model is saved to the folder itself
        _write(target / MODULES_FILE, [{**modules[0], "path": ""}, *modules[1:]])
    _copy_limits(inner, target, keep_config)
    if (source / PROMPTS_FILE).is_file():
        shutil.copyfile(source / PROMPTS_FILE, target / PROMPTS_FILE)
    for place in places:
        shutil.copytree(source / place, target / place, dirs_exist_ok=True)


def _copy_limits(source: Path, target: Path, keep_config: bool) -> None:
    """Copy the settings next to a model, by default without changes of its configuration."""
    for name in LIMIT_FILES:
        content = read_object(source / name, {})
        if content and not keep_config:
            content = without_config(content)
        if content:
            _write(target / name, content)


def read_recipe(folder: Path, *, task: str | None = None) -> JsonObject:
    """Return the modules of a folder as arguments for `SentencePooling`.

    Args:
        task: "query" or "document" for the maximum length of such texts; default: the length for
            all texts.

    Raises:
        SettingError: a module or a setting is not supported.
    """
    model, text = read_model_settings(model_folder(folder)), read_text_settings(folder)
    if model.refused:
        raise SettingError(not_supported(folder / LIMIT_FILE, model.refused[0]))
    modes, after, without_prompt = _read_modules(folder)
    limit = model.max_length
    if task is not None:
        limit = model.task_lengths.get(task, limit)
    return {
        "modes": modes,
        "after": after,
        "max_length": limit,
        "lower": model.lower,
        "prompt": text.default,
        "truncate": text.truncate,
        "include_prompt": not without_prompt,
    }


def check_loaded(folder: Path, model: PreTrainedModel) -> None:
    """Check that a model was loaded with the settings of a folder, which may belong to the adapters
    of another model.

    Raises:
        SettingError: the folder asks for half precision, or changes the configuration, but the
            model differs.
    """
    settings = read_model_settings(model_folder(folder))
    dtype = str(model.dtype).removeprefix("torch.")
    if settings.dtype not in (None, "float32", dtype):
        fact = (
            f"{folder / LIMIT_FILE}: the folder asks for weights in {settings.dtype}, but they are "
            f"{dtype}"
        )
        raise SettingError(
            f"{fact}; load the encoder with dtype {settings.dtype}, or set the sentence pooling to "
            "subwords"
        )
    for name, value in settings.config.items():
        loaded = getattr(model.config, name, value)
        if loaded != value:
            fact = (
                f"config_kwargs.{name} is {value!r:.60}, but the model was loaded with "
                f"{loaded!r:.60}"
            )
            raise SettingError(not_supported(folder / LIMIT_FILE, fact))


def _read_modules(folder: Path) -> tuple[tuple[str, ...], list[nn.Module], bool]:
    """Return the pooling modes, the modules after the pooling, and whether the pooling excludes the
    prompt.
    """
    modes: tuple[str, ...] = ()
    after: list[nn.Module] = []
    without_prompt = False
    modules = modules_of(folder)
    if modules and module_kind(modules[0]) != "Transformer":
        first = _named(modules[0])
        raise SettingError(
            not_supported(folder, f"the first module must be Transformer, got {first}")
        )
    for module in modules[1:]:
        place, class_name = folder / str(module["path"]), module_kind(module)
        if _is_ignored(class_name, folder):
            continue
        if class_name == "Pooling" and not modes:
            modes, without_prompt = _read_pooling(place)
            continue
        # The other modules operate on sentence vectors, so they must follow the pooling.
        parts = _read_after(class_name, place) if modes else None
        if parts is None:
            fact = (
                f"the module {_named(module) or place.name} is not supported (only Pooling, then "
                "Dense or Normalize)"
            )
            raise SettingError(not_supported(folder, fact))
        after += parts
    if not modes:
        raise SettingError(not_supported(folder, f"{MODULES_FILE} lists no Pooling module"))
    return modes, after, without_prompt


def _is_ignored(class_name: str, folder: Path) -> bool:
    """Return whether a module of a folder is not needed: dropout has no effect at inference, and
    the layer of an encoder that calque saved is in `calque.json`.
    """
    return class_name == "Dropout" or (class_name == LAYER_MODULE and bool(read_about(folder)))


def _read_after(class_name: str, place: Path) -> list[nn.Module] | None:
    """Return the modules of PyTorch that compute a module after the pooling; None if it is not
    supported.
    """
    if class_name == "Dense":
        return _dense(place)
    if class_name == "Normalize":
        _check_normalize(place)
        return [UnitLength()]
    return None


def _read_pooling(place: Path) -> tuple[tuple[str, ...], bool]:
    """Return the pooling modes in a folder, and whether the prompt is excluded from the pooling."""
    about = read_object(place / "config.json")
    known = {"word_embedding_dimension", "embedding_dimension", "pooling_mode", "include_prompt"}
    _check_keys(place, about, known | MODES.keys())
    return _pooling_modes(about), not about.get("include_prompt", True)


def _pooling_modes(about: JsonObject) -> tuple[str, ...]:
    """Return the pooling modes of a configuration. Before version 6, sentence-transformers saved
    flags instead of names.
    """
    modes = about.get("pooling_mode") or []
    if not isinstance(modes, list):
        modes = [modes]
    if not modes:
        modes = [mode for flag, mode in MODES.items() if about.get(flag)]
    for mode in modes:
        if mode not in MODES.values():
            raise SettingError(
                f"pooling mode must be one of {', '.join(MODES.values())}, got {mode!r}"
            )
    return tuple(modes) or ("mean",)


def _check_normalize(place: Path) -> None:
    about = read_object(place / "config.json", {})
    _check_keys(place, about, {"module_input_name", "module_output_name"})
    for name in ("module_input_name", "module_output_name"):
        if (about.get(name) or _VECTOR) != _VECTOR:
            raise SettingError(not_supported(place, "only sentence vectors can be L2-normalised"))


def _check_keys(place: Path, about: Mapping[str, object], known: set[str]) -> None:
    """Raise SettingError if a module has a setting that calque does not support."""
    unknown = about.keys() - known
    if unknown:
        raise SettingError(not_supported(place / "config.json", f"{min(unknown)} is not supported"))


def _dense(folder: Path) -> list[nn.Module]:
    """Load a sentence-transformers dense layer and its activation."""
    try:
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        weights = read_tensors(folder, "model.safetensors", "pytorch_model.bin")
        has_residual = about.get("use_residual")
        names = {about.get("module_input_name"), about.get("module_output_name")}
        has_bias = about.get("bias", True)
        linear = nn.Linear(about["in_features"], about["out_features"], bias=has_bias)
        if not has_residual:
            linear.load_state_dict(
                {name.removeprefix("linear."): weight.float() for name, weight in weights.items()}
            )
        class_name = str(about.get("activation_function", "torch.nn.Tanh"))
        package, _, activation = class_name.rpartition(".")
    except Exception as error:  # corrupt files raise exceptions from several libraries
        raise InputError(
            f"not a sentence-transformers dense layer ({error!s:.200})", path=folder
        ) from error
    _check_keys(folder, about, _OF_DENSE)
    if has_residual or names - {None, _VECTOR}:
        raise SettingError(
            f"{folder}: residual connections and inputs other than sentence vectors are not "
            "supported"
        )
    if activation not in _ACTIVATIONS or package.partition(".")[0] != "torch":
        raise SettingError(
            f"{folder}: the activation must be one of {', '.join(_ACTIVATIONS)}, got {activation}"
        )
    return [linear, _ACTIVATIONS[activation]()]


def _named(module: Mapping[str, object]) -> str:
    """Return the name of a module for an error message."""
    return module_kind(module) or str(module.get("type", ""))[:100]


# -- writing ---------------------------------------------------------------------------------------
def write_modules(
    folder: Path,
    *,
    dim: int,
    max_length: int | None,
    tokenizer: PreTrainedTokenizerFast | None = None,
    modes: Sequence[str] = ("mean",),
    after: Iterable[nn.Module] = (),
    lower: bool = False,
    prompt: str = "",
    truncate: int | None = None,
) -> None:
    """Add sentence-transformers modules (for version 3 or later) to the folder of an encoder and
    its tokenizer.

    The modules use the last layer; `write_layer` selects another layer. Half-precision weights are
    loaded as float32, as in calque. If a tokenizer has no padding token, as in GPT-2, another
    special token is used for padding.

    Args:
        max_length: maximum number of subwords in a text, including special tokens, or None.
        modes: pooling modes in the order of `MODES`; the vectors of several modes are concatenated.
        after: modules that follow the pooling: linear layers with optional activations, and
            `UnitLength`.
        lower, prompt: whether to lower-case texts, and a prompt to put before each text.
        truncate: number of dimensions of the final vector that are kept; default: all.
    """
    names = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if [mode for mode in MODES.values() if mode in modes] != list(modes):
        known = ", ".join(MODES.values())
        raise SettingError(
            f"pooling modes must be among {known} and in this order, got {', '.join(modes)}"
        )
    _write_pooling(folder / "1_Pooling", dim, modes)
    names += _write_after(folder, list(after), len(names))
    write_list(folder, names)
    _write(folder / LIMIT_FILE, _limits(folder, tokenizer, max_length, lower))
    settings: dict[str, object] = {"prompts": {}, "default_prompt_name": None}
    if prompt:
        settings = {"prompts": {"text": prompt}, "default_prompt_name": "text"}
    settings["similarity_fn_name"] = "cosine"
    if truncate is not None:
        settings["truncate_dim"] = truncate
    _write(folder / PROMPTS_FILE, settings)
    about = read_about(folder)
    if about:
        # The modules belong to the encoder now, even if calque added some before.
        about = {name: value for name, value in about.items() if name != "own_pooling"}
        write_about(folder, about["kind"], about)


def _write_pooling(place: Path, dim: int, modes: Sequence[str]) -> None:
    """Write the pooling modes of vectors with `dim` dimensions."""
    flags = {flag: mode in modes for flag, mode in MODES.items()}
    pooling = {"word_embedding_dimension": dim, **flags, "include_prompt": True}
    _write(place / "config.json", pooling)


def _limits(
    folder: Path, tokenizer: PreTrainedTokenizerFast | None, max_length: int | None, lower: bool
) -> dict[str, object]:
    """Return the settings with which sentence-transformers loads the model and its tokenizer as
    calque does.
    """
    limits: dict[str, object] = {"max_seq_length": max_length, "do_lower_case": lower}
    config = read_object(folder / "config.json", {})
    if (config.get("dtype") or config.get("torch_dtype") or "float32") != "float32":
        # Every transformers version accepts this key.
        limits["model_args"] = {"torch_dtype": "float32"}
    if tokenizer is not None and tokenizer.pad_token is None and tokenizer.all_special_tokens:
        # Every token works, because padding is masked.
        limits["tokenizer_args"] = {"pad_token": tokenizer.all_special_tokens[-1]}
    return limits


def _write_after(folder: Path, parts: list[nn.Module], number: int) -> list[tuple[str, str]]:
    """Write the modules that follow the pooling, and return their folders and class names.

    Args:
        number: index of the first of these modules.
    """
    names: list[tuple[str, str]] = []
    while parts:
        part, place = parts.pop(0), number + len(names)
        if isinstance(part, UnitLength):
            names.append((f"{place}_Normalize", "Normalize"))
            continue
        if not isinstance(part, nn.Linear):
            supported = (
                f"linear layers, each with or without an activation ({', '.join(_ACTIVATIONS)}), "
                "and UnitLength"
            )
            fact = f"sentence-transformers does not support {type(part).__name__} after the pooling"
            raise SettingError(f"{fact}; use only {supported}")
        # A linear layer and its activation form one module.
        activation: nn.Module = nn.Identity()
        if parts and type(parts[0]) in _ACTIVATIONS.values():
            activation = parts.pop(0)
        _write_dense(folder / f"{place}_Dense", part, activation)
        names.append((f"{place}_Dense", "Dense"))
    return names


def write_layer(folder: Path, *, dim: int, layer: int, n_layers: int) -> None:
    """Make sentence-transformers use `layer` by adding a module that selects this layer, unless it
    is the last (`n_layers`).
    """
    modules = modules_of(folder)
    names = [
        (str(module["path"]), module_kind(module))
        for module in modules
        if module_kind(module) != LAYER_MODULE
    ]
    if not modules or (layer == n_layers and len(names) == len(modules)):
        return
    if layer != n_layers:
        names.insert(1, (LAYER_MODULE, LAYER_MODULE))
        place, weights = folder / LAYER_MODULE, torch.zeros(n_layers + 1 - layer)
        weights[0] = 1.0
        about = {
            "word_embedding_dimension": dim,
            "layer_start": layer,
            "num_hidden_layers": n_layers,
        }
        _write(place / "config.json", about)
        save_file({"layer_weights": weights}, place / "model.safetensors")
        _read_all_layers(model_folder(folder))
    write_list(folder, names)


def _read_all_layers(place: Path) -> None:
    """Add a setting to the file next to a model, with which it returns the vectors of all
    layers.
    """
    limits = read_object(place / LIMIT_FILE, {})
    known = "config_kwargs" if "config_kwargs" in limits else "config_args"
    limits[known] = {**limits.get(known, {}), "output_hidden_states": True}
    _write(place / LIMIT_FILE, limits)


def write_outer_modules(
    folder: Path,
    inner: str,
    *,
    dim: int,
    layer: int,
    n_layers: int,
    weight: Tensor,
    bias: Tensor,
    max_length: int | None,
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    """Write sentence-transformers modules that use the model and the modules of the subfolder
    `inner`, with a dense layer directly after their pooling.

    The folder itself has no `config.json`, so transformers cannot open it without the dense layer.

    Args:
        dim, layer, n_layers: see `write_layer`.
        weight, bias: weights of the dense layer, `[dim, dim]` and `[dim]`: x → x Wᵀ + b. It is
            applied to the vector of each pooling mode.
        max_length, tokenizer: see `write_modules`; used if the subfolder has no modules.
    """
    names: list[tuple[str, str]] = []
    for place, class_name in _inner_modules(folder, inner, dim, max_length, tokenizer):
        names.append((place, class_name))
        if class_name == "Pooling":
            modes, _ = _read_pooling(folder / place)
            linear = _repeated(weight, bias, len(modes))
            dense = f"{len(names)}_Dense"
            _write_dense(folder / dense, linear, nn.Identity())
            names.append((dense, "Dense"))
    write_list(folder, names)
    write_layer(folder, dim=dim, layer=layer, n_layers=n_layers)


def write_mapped_modules(
    folder: Path,
    inner: str,
    *,
    dim: int,
    max_length: int | None,
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    """Write sentence-transformers modules that read the model in the subfolder `inner`, map its
    subword vectors by language, and pool them with the modules of this subfolder, or else take the
    mean.

    The module of the maps reads the layers itself.

    Args:
        dim: number of dimensions of mapped vectors.
        max_length, tokenizer: see `write_modules`; used if the subfolder has no modules.
    """
    _, *others = _inner_modules(folder, inner, dim, max_length, tokenizer)
    _read_all_layers(folder / inner)
    write_list(folder, [(inner, MAPPED_MODULE), *others])


def _inner_modules(
    folder: Path,
    inner: str,
    dim: int,
    max_length: int | None,
    tokenizer: PreTrainedTokenizerFast,
) -> list[tuple[str, str]]:
    """Return the places and class names of the modules in the subfolder `inner`, without the choice
    of a layer; without modules, write those that compute the mean of all subwords.

    The prompts of the subfolder are copied to the folder.
    """
    place = folder / inner
    modules = modules_of(place)
    if not modules:
        _write_pooling(folder / "1_Pooling", dim, ("mean",))
        _write(place / LIMIT_FILE, _limits(place, tokenizer, max_length, lower=False))
        return [(inner, "Transformer"), ("1_Pooling", "Pooling")]
    if (place / PROMPTS_FILE).is_file():
        shutil.copyfile(place / PROMPTS_FILE, folder / PROMPTS_FILE)
    names = []
    for module in modules:
        if module_kind(module) != LAYER_MODULE:
            names.append((f"{inner}/{module['path']}".rstrip("/."), module_kind(module)))
    return names


def _repeated(weight: Tensor, bias: Tensor, n: int) -> nn.Linear:
    """Return a linear layer that applies x → x Wᵀ + b to each of `n` concatenated vectors."""
    size = n * len(bias)
    linear = nn.Linear(size, size)
    with torch.no_grad():
        linear.weight.copy_(torch.block_diag(*[weight] * n))
        linear.bias.copy_(bias.repeat(n))
    return linear


def write_list(folder: Path, modules: Iterable[tuple[str, str]]) -> None:
    """Write `modules.json` from pairs of a module's folder and class name, and create the folders.

    A class name without a package is a module of sentence-transformers.
    """
    rows = []
    for number, (place, class_name) in enumerate(modules):
        (folder / place).mkdir(parents=True, exist_ok=True)
        type_name = class_name
        if "." not in class_name:
            type_name = f"sentence_transformers.models.{class_name}"
        rows.append({"idx": number, "name": str(number), "path": place, "type": type_name})
    _write(folder / MODULES_FILE, rows)


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_text(content, undefined="refuse", indent=2) + "\n", encoding="utf-8")


def _write_dense(place: Path, linear: nn.Linear, activation: nn.Module) -> None:
    config = {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": linear.bias is not None,
        "activation_function": f"{type(activation).__module__}.{type(activation).__qualname__}",
    }
    _write(place / "config.json", config)
    weights = {}
    for name, weight in linear.named_parameters():
        weights[f"linear.{name}"] = weight.detach().float().cpu().contiguous()
    save_file(weights, place / "model.safetensors")
