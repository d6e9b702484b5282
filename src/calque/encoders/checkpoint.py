"""Load and check `transformers` models and tokenizers."""

from __future__ import annotations

import hashlib
import os
import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import nn

from calque.errors import CalqueError, InputError, SettingError
from calque.named import TRUST_CODE


def read_checkpoint(name: str, dtype: torch.dtype | str, attention: str | None) -> tuple[Any, Any]:
    """Load a model and its tokenizer from a folder or from the hub, and check that both are complete and match each other.

    Args:
        dtype: weight type, or "auto" for the type in the file.
        attention: `attn_implementation` of `transformers`; None leaves the choice to `transformers`.
    """
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

    try:
        with _quiet(local=os.path.isdir(name)):
            offline = not os.path.isdir(name) and unconnected()
            where = {"local_files_only": offline, "trust_remote_code": bool(TRUST_CODE)}
            config = AutoConfig.from_pretrained(name, **where)
            _check_size(config, name)
            how: dict[str, Any] = {"dtype": dtype, "output_loading_info": True, **where}
            if attention is not None:
                how["attn_implementation"] = attention
            kind = AutoModel
            if type(config) in AutoModelForTextEncoding._model_mapping:  # load only the encoder of T5 models
                kind = AutoModelForTextEncoding
            elif config.is_encoder_decoder:
                how["config"] = _without_decoder(config, name)
            model, report = kind.from_pretrained(name, **how)
            missing = set(report["missing_keys"])
            if "config" in how:
                missing = _drop_decoder(model, missing, name)
            tokenizer = AutoTokenizer.from_pretrained(name, **where)
            if type(tokenizer).__name__ in ("MarianTokenizer", "M2M100Tokenizer"):  # these have no fast version
                from calque.encoders.sentencepiece_files import fast_tokenizer

                tokenizer = fast_tokenizer(tokenizer)
    except CalqueError:
        raise
    except Exception as error:  # corrupt files raise exceptions from many libraries
        if os.path.isdir(name):
            raise InputError(f"not an encoder that transformers can load ({first_line(error)})", path=name) from error
        fact = f"{name!r} is not a local folder, and loading it from the Hugging Face hub failed ({first_line(error)})"
        raise InputError(f"{fact}; check the name and the connection, or use a local folder") from error
    if len(tokenizer) <= len(
        set(tokenizer.all_special_ids)
    ):  # transformers builds an empty tokenizer if the tokenizer file is missing
        raise InputError("the encoder has no tokenizer; add its tokenizer.json", path=name)
    if any(key.startswith("pooler.") for key in missing):
        model.pooler = None  # the pooler's random weights must not be hashed or saved
    if missing := [key for key in missing if not key.startswith("pooler.")]:
        fact = f"{len(missing)} weights are missing ({min(missing)}, …); use a complete {config.model_type} checkpoint"
        raise InputError(fact, path=name)
    return model, tokenizer


def _without_decoder(config: Any, name: str) -> Any:
    """Return the configuration of an encoder-decoder model after setting its number of decoder layers to 0."""
    if not hasattr(config, "decoder_layers"):
        fact = f"{name} is an encoder-decoder model ({config.model_type}) whose decoder cannot be removed"
        raise SettingError(f"{fact}; supported models are T5, Marian, M2M100, NLLB, mBART, BART and Pegasus")
    config.decoder_layers, config.encoder_layerdrop = 0, 0.0  # layers skipped by LayerDrop have no hidden states
    return config


def _drop_decoder(model: Any, missing: set[str], name: str) -> set[str]:
    """Remove the decoder, and return the names of the encoder's missing weights."""
    encoder = model.get_encoder()
    if getattr(encoder, "main_input_name", "input_ids") != "input_ids":
        raise SettingError(f"{name} cannot encode text: its encoder requires {encoder.main_input_name}")
    model.decoder = None
    computed = {f"encoder.{key}.weight" for key, part in encoder.named_modules() if "Sinusoidal" in type(part).__name__}
    return {key for key in missing - computed if not key.startswith("decoder.")}


def hub_folder(name: str, mark: str, patterns: Sequence[str] = ()) -> Path | None:
    """Return the local copy of a hub repository that contains the file `mark`, or None. `patterns` selects the files to fetch."""
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    if name.count("/") != 1 or name[0] in "/." or Path(name).exists():
        return None
    try:
        here = unconnected()
        hf_hub_download(name, mark, local_files_only=here)
        return Path(snapshot_download(name, allow_patterns=list(patterns) or None, local_files_only=here))
    except (OSError, ValueError, HfHubHTTPError):  # the file does not exist, or there is no access or no connection
        return None


def _check_size(config: Any, name: str) -> None:
    """Check that the sizes in the configuration match the weight files; a corrupt configuration could exhaust memory."""
    keys = ("num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size")
    layers, width, vocabulary, inner = sizes = [getattr(config, key, 0) or 0 for key in keys]
    held = sum(path.stat().st_size for path in Path(name).glob("*") if path.suffix in (".safetensors", ".bin"))
    valid = all(isinstance(size, int) and size >= 0 for size in sizes)
    # Up to 64 layers may share weights, so the files can be 64 times smaller than the sizes suggest.
    if not valid or 0 < 64 * max(held, (held > 0) << 20) < width * (vocabulary + inner + layers * width):
        fact = f"the sizes {sizes!r:.80} do not match {held:,} bytes of weights; are all files from the same encoder?"
        raise InputError(fact, path=Path(name, "config.json"))


def unconnected() -> bool:
    """Return whether the hub's host name cannot be resolved; this check avoids half a minute of connection attempts."""
    from huggingface_hub.constants import ENDPOINT

    try:
        if not getproxies():
            socket.getaddrinfo(urlsplit(ENDPOINT).hostname, None)
    except OSError:
        return True
    return False


@contextmanager
def _quiet(local: bool) -> Iterator[None]:
    """Silence log messages of `transformers` inside the `with` block, and also its progress bars if `local` is set."""
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


def save_model(model: Any, folder: str | PathLike[str]) -> None:
    """Call `save_pretrained` without its progress bar."""
    with _quiet(local=True):
        model.save_pretrained(folder)


def weights_digest(model: nn.Module) -> str:
    """Return a hash of all weights with their names and shapes. The hash is not cached, because optimisers can change weights
    without increasing PyTorch's version counter.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
