"""Load and check `transformers` models and tokenizers."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from calque.encoders.hub_cache import unconnected
from calque.encoders.sentence_folders import model_settings
from calque.encoders.sentence_settings import ModelSettings
from calque.errors import CalqueError, InputError, OutputError, SettingError
from calque.named import TRUST_CODE
from calque.storage import json_text, read_json_object

if TYPE_CHECKING:
    from transformers import (
        AutoModel,
        AutoModelForTextEncoding,
        PretrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerFast,
    )

#: keyword arguments of `from_pretrained`
_Arguments: TypeAlias = dict[str, Any]


def read_checkpoint(
    name: str,
    dtype: torch.dtype | str,
    attention: str | None,
    *,
    revision: str | None = None,
    beside: str = "",
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Load a model and its tokenizer from a folder or from the hub, and check that both are
    complete and match each other.

    The settings that a sentence-transformers folder has for its model and tokenizer are applied.

    Args:
        dtype: weight type, or "auto" for the type in the file.
        attention: `attn_implementation` of `transformers`; None leaves the choice to
            `transformers`.
        revision: branch, tag or commit on the hub; default: main. It does not apply to folders.
        beside: sentence-transformers folder whose settings have priority over those of `name`, such
            as a folder of adapters.
    """
    from transformers import AutoConfig

    whole = name
    name, settings = _place_and_settings(name, revision, beside)
    try:
        with _quiet(local=os.path.isdir(name)):
            where = _where(name, revision)
            config = AutoConfig.from_pretrained(name, **where)
            _check_size(config, name)
            arguments: _Arguments = {"dtype": dtype, **where}
            if settings.config:
                config = AutoConfig.from_pretrained(name, **settings.config, **where)
                arguments["config"] = config
            if attention is not None:
                arguments["attn_implementation"] = attention
            model, missing, _ = _load(name, config, arguments)
            tokenizer = _load_tokenizer(name, {**settings.tokenizer, **where})
            tokenizer = _with_limit(tokenizer, settings)
    except CalqueError:
        raise
    except Exception as error:  # corrupt files raise exceptions from many libraries
        raise _cannot_load(name, error) from error
    # transformers builds an empty tokenizer if the tokenizer file is missing.
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise InputError("the encoder has no tokenizer; add its tokenizer.json", path=name)
    _check_missing(model, missing, name)
    if name != whole:  # the settings are read from the whole folder, not only from the model's
        model.name_or_path = model.config.name_or_path = whole
    return model, tokenizer


def _place_and_settings(name: str, revision: str | None, beside: str) -> tuple[str, ModelSettings]:
    """Return the folder or name of the model itself, and the settings of sentence-transformers for
    loading it; see `read_checkpoint`.
    """
    settings = ModelSettings()
    # Only the main branch of a sentence-transformers model on the hub can have settings for its
    # model.
    if not revision:
        name, settings = model_settings(name)
    if beside:
        _, beside_settings = model_settings(beside)
        config = {**settings.config, **beside_settings.config}
        settings = replace(beside_settings, config=config)
    return name, settings


def _cannot_load(name: str, error: Exception) -> InputError:
    """Return the error that reports why a folder, or a name on the hub, cannot be loaded."""
    if os.path.isdir(name):
        return InputError(
            f"not an encoder that transformers can load ({first_line(error)})", path=name
        )
    fact = (
        f"{name!r} is not a local folder, and loading it from the Hugging Face hub failed "
        f"({first_line(error)})"
    )
    return InputError(f"{fact}; check the name and the connection, or use a local folder")


def _check_missing(model: PreTrainedModel, missing: set[str], name: str) -> None:
    """Raise InputError if weights other than those of the pooler are missing, and remove a pooler
    without weights.
    """
    poolers = {key for key in missing if key.startswith("pooler.")}
    if poolers:
        # The pooler's random weights must not be hashed or saved.
        model.pooler = None  # type: ignore[assignment]
    required = missing - poolers
    if required:
        fact = (
            f"{len(required)} weights are missing ({min(required)}, …); use a complete "
            f"{model.config.model_type} checkpoint"
        )
        raise InputError(fact, path=name)


def _where(name: str, revision: str | None) -> _Arguments:
    """Return the arguments of `from_pretrained` that determine where files may come from."""
    local = os.path.isdir(name)
    where = {"local_files_only": not local and unconnected(), "trust_remote_code": bool(TRUST_CODE)}
    return where if local or not revision else {**where, "revision": revision}


def _load(
    name: str, config: PretrainedConfig, arguments: _Arguments
) -> tuple[PreTrainedModel, set[str], set[str]]:
    """Load the encoder part of a model; return it with the names of the weights that are missing or
    unknown.
    """
    from transformers import AutoModel, AutoModelForTextEncoding

    # transformers would load adapters in the same folder without calque's checks; a subfolder that
    # does not exist prevents this.
    arguments = {
        "output_loading_info": True,
        "adapter_kwargs": {"subfolder": "no-adapters"},
        **arguments,
    }
    auto_class: type[AutoModel | AutoModelForTextEncoding] = AutoModel
    if type(config) in AutoModelForTextEncoding._model_mapping:
        auto_class = AutoModelForTextEncoding  # loads only the encoder of T5 models
    elif config.is_encoder_decoder:
        arguments["config"] = _without_decoder(config, name)
    model, report = auto_class.from_pretrained(name, **arguments)
    missing, unknown = set(report["missing_keys"]), set(report["unexpected_keys"])
    if config.is_encoder_decoder and auto_class is AutoModel:
        missing = _drop_decoder(model, missing, name)
    return model, missing, unknown


def _load_tokenizer(name: str, where: _Arguments) -> PreTrainedTokenizerFast:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name, **where)
    # These tokenizers have no fast version.
    if type(tokenizer).__name__ in ("MarianTokenizer", "M2M100Tokenizer"):
        from calque.encoders.sentencepiece_files import fast_tokenizer

        return fast_tokenizer(tokenizer)
    return tokenizer


def _with_limit(
    tokenizer: PreTrainedTokenizerFast, settings: ModelSettings
) -> PreTrainedTokenizerFast:
    """Return the tokenizer after raising its length limit to that of the sentence model, which may
    be larger.
    """
    if settings.longest is not None:
        tokenizer.model_max_length = max(tokenizer.model_max_length, settings.longest)
    return tokenizer


def read_tokenizer(folder: Path, config: PretrainedConfig) -> PreTrainedTokenizerFast:
    """Load a tokenizer from a folder that contains no model; `config` is the configuration of the
    model.
    """
    place, settings = model_settings(str(folder))
    try:
        with _quiet(local=True):
            where = {**_where(place, None), "config": config}
            return _with_limit(_load_tokenizer(place, {**settings.tokenizer, **where}), settings)
    except CalqueError:
        raise
    except Exception as error:  # corrupt files raise exceptions from many libraries
        raise InputError(
            f"the tokenizer cannot be loaded ({first_line(error)})", path=folder
        ) from error


def check_complete(folder: Path) -> None:
    """Check that a folder contains all weights of its encoder and no others, without reading them.

    Raises:
        OutputError: a weight is missing or unknown.
    """
    from transformers import AutoConfig

    where = _where(str(folder), None)
    try:
        with _quiet(local=True):
            config = AutoConfig.from_pretrained(folder, **where)
            # Weights on the meta device take no memory.
            arguments = {"device_map": "meta", **where}
            _, missing, unknown = _load(str(folder), config, arguments)
    except Exception as error:  # `transformers` raises many kinds of exceptions
        raise OutputError(
            f"{folder}: the encoder was not saved completely ({first_line(error)})"
        ) from error
    wrong = sorted(name for name in missing | unknown if not name.startswith("pooler."))
    if wrong:
        raise OutputError(f"{folder}: the encoder was not saved completely ({wrong[0]})")


def _without_decoder(config: PretrainedConfig, name: str) -> PretrainedConfig:
    """Return the configuration of an encoder-decoder model after setting its number of decoder
    layers to 0.
    """
    if not hasattr(config, "decoder_layers"):
        fact = (
            f"{name} is an encoder-decoder model ({config.model_type}) whose decoder cannot be "
            "removed"
        )
        raise SettingError(
            f"{fact}; supported models are T5, Marian, M2M100, NLLB, mBART, BART and Pegasus"
        )
    config.decoder_layers = 0
    config.encoder_layerdrop = 0.0  # layers that LayerDrop skips have no hidden states
    return config


def _drop_decoder(model: PreTrainedModel, missing: set[str], name: str) -> set[str]:
    """Remove the decoder, and return the names of the encoder's missing weights."""
    encoder = model.get_encoder()
    if getattr(encoder, "main_input_name", "input_ids") != "input_ids":
        raise SettingError(
            f"{name} cannot encode text: its encoder requires {encoder.main_input_name}"
        )
    model.decoder = None  # type: ignore[assignment]
    computed = {
        f"encoder.{key}.weight"
        for key, part in encoder.named_modules()
        if "Sinusoidal" in type(part).__name__
    }
    return {key for key in missing - computed if not key.startswith("decoder.")}


def _check_size(config: PretrainedConfig, name: str) -> None:
    """Check that the sizes in the configuration match the weight files; a corrupt configuration
    could exhaust memory.
    """
    keys = ("num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size")
    layers, width, vocabulary, inner = sizes = [getattr(config, key, 0) or 0 for key in keys]
    held = sum(
        path.stat().st_size
        for path in Path(name).glob("*")
        if path.suffix in (".safetensors", ".bin")
    )
    valid = all(isinstance(size, int) and size >= 0 for size in sizes)
    # Up to 64 layers may share weights, so the files can be 64 times smaller than the sizes
    # suggest.
    if not valid or 0 < 64 * max(held, (held > 0) << 20) < width * (
        vocabulary + inner + layers * width
    ):
        fact = (
            f"the sizes {sizes!r:.80} do not match {held:,} bytes of weights; are all files from "
            "the same encoder?"
        )
        raise InputError(fact, path=Path(name, "config.json"))


@contextmanager
def _quiet(local: bool) -> Iterator[None]:
    """Silence log messages of `transformers` inside the `with` block, and also its progress bars if
    `local` is set.
    """
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(50)  # only critical messages
    if local:
        logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if local and bars:
            logging.enable_progress_bar()


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def read_tensors(folder: Path, name: str, pickled: str) -> dict[str, Tensor]:
    """Read the tensors in a file of a folder, without running code from the file.

    Args:
        name: name of a safetensors file.
        pickled: name of the PyTorch file that is read if there is no safetensors file.
    """
    if (folder / name).is_file() or not (folder / pickled).is_file():
        return load_file(folder / name)
    return torch.load(folder / pickled, map_location="cpu", weights_only=True)


def adapter_modules(model: nn.Module) -> list[str]:
    """Return the names of the modules that PEFT added to a model."""
    return [
        name
        for name, part in model.named_modules()
        if type(part).__module__.partition(".")[0] == "peft"
    ]


def save_model(model: PreTrainedModel, folder: str | PathLike[str]) -> None:
    """Call `save_pretrained` without its progress bar; refuse a model with adapters, because the
    file would not be complete.
    """
    if adapter_modules(model):
        fact = "a model that contains adapters cannot be saved as a complete encoder"
        raise SettingError(f"{fact}; merge them first (merge_and_unload in PEFT)")
    with _quiet(local=True):
        model.save_pretrained(folder)


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the files of a tokenizer, without the name of a class that also processes images.

    Gemma's tokenizer names such a class. Other programs, such as sentence-transformers, would look
    for its settings, which a folder with text alone does not have.
    """
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return
    settings = read_json_object(path, "not the settings of a tokenizer")
    if settings.pop("processor_class", None) is not None:
        text = json_text(settings, indent=2, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")


def weights_digest(model: nn.Module) -> str:
    """Return a hash of all weights with their names and shapes. The hash is not cached, because
    optimisers can change weights without increasing PyTorch's version counter.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
