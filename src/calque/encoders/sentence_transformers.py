"""Folders of sentence-transformers: an encoder, and modules that make one vector of a sentence; read and written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from calque.encoders.checkpoint import unconnected
from calque.encoders.folder import read_about, write_about
from calque.errors import InputError, SettingError

MODULES_FILE = "modules.json"
LIMIT_FILE, PROMPTS_FILE = "sentence_bert_config.json", "config_sentence_transformers.json"
_SETTINGS = (PROMPTS_FILE, LIMIT_FILE)
#: kinds of models with a decoder of which version 6 builds the encoder alone; of others (BART, mBART) it would read the decoder
ENCODERS_ALONE = ("blenderbot", "blenderbot-small", "m2m_100", "marian", "pegasus")
#: the module that takes another layer than the last, and where calque writes it
LAYER_MODULE = "WeightedLayerPooling"
#: the flags of versions before 6 in the order in which their vectors are concatenated, and what they are called since
MODES = {
    "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max", "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """How such a folder makes a sentence's vector of those of its subwords, special ones included.

    Attributes:
        modes: "cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"; of several the vectors are
            concatenated.
        after: what follows: folders of dense layers, and "normalize".
        max_length: most subwords; None where only the encoder limits them.
        lower: texts are lower-cased first.
        prompt: what stands before each text.
    """

    modes: tuple[str, ...]
    after: tuple[Path | str, ...] = ()
    max_length: int | None = None
    lower: bool = False
    prompt: str = ""


def modules_of(folder: Path) -> Path | None:
    """The folder, if it is one of sentence-transformers whose encoder stands in it directly."""
    return folder if _modules(folder) else None


def fetched_modules(name: str) -> Path | None:
    """The same of a name on the Hugging Face hub: where what comes after the encoder was fetched to; None if there is no such
    thing, or no connection."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    def fetched(file: str) -> Path | None:
        try:
            return Path(hf_hub_download(name, file, local_files_only=here))
        except (OSError, ValueError, HfHubHTTPError):  # none there, private, not connected; reading will say so
            return None

    if not name or name.count("/") != 1 or name[0] in "/." or Path(name).exists():
        return None
    here = unconnected()
    if (listed := fetched(MODULES_FILE)) is None:
        return None
    folder = listed.parent
    for module in listed_modules(folder)[1:]:
        for file in ("config.json", "model.safetensors", "pytorch_model.bin"):
            fetched(f"{module['path']}/{file}")
    for file in _SETTINGS:
        fetched(file)
    return modules_of(folder)


def own_modules(folder: Path, about: Mapping[str, Any]) -> tuple[Path | None, dict[str, int]]:
    """Return the folder with the modules of an encoder's own pooling, or None, and the layer that they read, -1 for the last.

    Args:
        folder: of the encoder, or its name on the hub.
        about: what its `calque.json` says: modules that calque added for others to read are not its own.
    """
    modules = modules_of(folder) if folder.is_dir() and about.get("own_pooling", True) else None
    read = modules or (None if folder.is_dir() else fetched_modules(str(folder)))
    layer = None if read is None else named_layer(read)
    return modules, {} if read is None else {"layer": -1 if layer is None else layer}


def named_layer(folder: Path) -> int | None:
    """The layer that the modules of a folder take, counted from 0; None where that is the last, or a mean of several.

    Raises:
        InputError: a file is damaged.
    """
    named = [module for module in listed_modules(folder)[1:] if module_kind(module) == LAYER_MODULE]
    return _one_layer(folder / str(named[0]["path"])) if named else None


def _one_layer(place: Path) -> int | None:
    """The layer whose weight alone is not zero."""
    try:
        start = int(_object(place / "config.json")["layer_start"])
        weights = load_file(place / "model.safetensors")["layer_weights"].numpy()
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise InputError(f"not a mean of layers of sentence-transformers ({error!s:.200})", path=place) from error
    taken = np.flatnonzero(weights)
    return start + int(taken[0]) if len(taken) == 1 else None


def copy_modules(source: Path, target: Path) -> None:
    """Copy what sentence-transformers needs beside the encoder: the list of modules, pooling, normalisation and so on.

    Raises:
        InputError: a module, or a link in it, leads out of the folder.
    """
    for file in (file for module in _modules(source) for file in (source / module).rglob("*")):
        _check_within(source, file.relative_to(source))
    for name in (MODULES_FILE, *_SETTINGS):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    for module in _modules(source):
        shutil.copytree(source / module, target / module, dirs_exist_ok=True)


def read_recipe(folder: Path) -> Recipe:
    """What the modules of a folder do.

    Raises:
        InputError: a file is damaged.
        SettingError: a module that calque does not know.
    """
    modes, after, without_prompt = (), [], False
    for module in listed_modules(folder)[1:]:
        place, kind = folder / str(module["path"]), module_kind(module)
        if kind == "Pooling" and not modes:
            about = _object(place / "config.json")
            modes, without_prompt = _pooling_modes(about), not about.get("include_prompt", True)
        elif kind == LAYER_MODULE and not modes:
            if _one_layer(place) is None:  # else the encoder was opened with it
                raise SettingError(
                    f"{place}: a mean of several layers, which calque has not: take words, subwords or cls"
                )
        elif kind == "Dense" and modes:
            after.append(place)
        elif kind == "Normalize" and modes:
            after.append("normalize")
        elif kind != "Dropout":  # which does nothing where nothing is trained
            raise SettingError(
                f"{folder}: its module {kind or place.name} is none that calque knows (Pooling, then Dense and Normalize): take "
                "another sentence pooling, words, subwords or cls"
            )
    if not modes:
        raise SettingError(f"{folder}: {MODULES_FILE} names no pooling: take words, subwords or cls")
    limits, settings = _object(folder / LIMIT_FILE, {}), _object(folder / PROMPTS_FILE, {})
    prompts, limit = settings.get("prompts") or {}, limits.get("max_seq_length")
    prompt = prompts.get(str(settings.get("default_prompt_name")), "") if isinstance(prompts, dict) else None
    if not isinstance(prompt, str):
        raise InputError("its prompts are no texts by name", path=folder / PROMPTS_FILE)
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise InputError(f"max_seq_length {limit!r:.60}, expected a number of subwords", path=folder / LIMIT_FILE)
    if prompt and without_prompt:
        raise SettingError(
            f"{folder}: it leaves its prompt {prompt!r} out of the mean, which calque cannot: take subwords"
        )
    return Recipe(modes, tuple(after), limit, bool(limits.get("do_lower_case")), prompt)


def _pooling_modes(about: Mapping[str, Any]) -> tuple[str, ...]:
    """What a pooling's file says: a name or several, or, before version 6, flags."""
    named = about.get("pooling_mode")
    listed = named if isinstance(named, list) else [named] if named else []
    modes = tuple(listed or (mode for flag, mode in MODES.items() if about.get(flag))) or ("mean",)
    if unknown := [mode for mode in modes if mode not in MODES.values()]:
        raise SettingError(f"pooling mode {unknown[0]!r}, expected one of {', '.join(MODES.values())}")
    return modes


def check_modes(modes: Sequence[str]) -> tuple[str, ...]:
    """Some ways of pooling, in the order in which sentence-transformers concatenates what they give.

    Raises:
        SettingError: one that there is not, or none.
    """
    known = tuple(MODES.values())
    if not modes or not set(modes) <= set(known):
        raise SettingError(
            f"sentence pooling {','.join(modes)!r}, expected own, subwords, or some of {', '.join(known)}"
        )
    return tuple(mode for mode in known if mode in modes)


def _object(path: Path, otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    """A file that is one JSON object; `otherwise` where there is none."""
    if otherwise is not None and not path.is_file():
        return otherwise
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"not what sentence-transformers writes ({error})", path=path) from error
    if not isinstance(found, dict):
        raise InputError("not what sentence-transformers writes: expected a JSON object", path=path)
    return found


def listed_modules(folder: Path) -> list[dict[str, Any]]:
    """Return the modules, the encoder first; none if this is no such folder, or one laid out in another way.

    Raises:
        InputError: the path of a module leads out of the folder.
    """
    try:
        modules = json.loads((folder / MODULES_FILE).read_text(encoding="utf-8"))
        paths = [str(module["path"]) for module in modules]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if not paths or paths[0] not in ("", "."):
        return []
    for path in paths[1:]:
        _check_within(folder, Path(path))
    return modules


def module_kind(module: Mapping[str, Any]) -> str:
    """The name of a module's class; where it can be imported from changes with the version."""
    return str(module.get("type", "")).rpartition(".")[2]


def _modules(folder: Path) -> list[str]:
    """Folders of the modules after the encoder that are there: one that keeps nothing may have none."""
    names = [str(module["path"]) for module in listed_modules(folder)[1:]]
    return [name for name in names if (folder / name).is_dir()]


def _check_within(folder: Path, name: Path) -> None:
    """Check that a module or a file of it stands in the folder, also where it is a link: others are none of the model's.

    The hub's client keeps files in `blobs`, and links to them in `snapshots/REVISION`.
    """
    root = folder.resolve()
    root = root.parents[1] if root.parent.name == "snapshots" else root
    place = (folder / name).resolve()
    if not name.parts or ".." in name.parts or name.is_absolute() or root not in place.parents:
        fact = f"the module {str(name)!r:.60} leads out of this folder"
        raise InputError(
            f"{fact}: name only folders in it, with files and no links to others", path=folder / MODULES_FILE
        )


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
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    how: dict[str, Any] = {}
    if (config.get("dtype") or config.get("torch_dtype") or "float32") != "float32":
        how["torch_dtype"] = "float32"  # this name is known to every version
    if config.get("is_encoder_decoder"):  # whose encoder it builds alone, from weights named as in the whole model
        how["key_mapping"] = {r"^shared\.": "embed_tokens.", r"^encoder\.": ""}
    if how:
        limits["model_args"] = how
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
