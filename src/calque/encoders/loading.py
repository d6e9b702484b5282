"""From a name to an encoder."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch

from calque.corpora.languages import name_and_path
from calque.distributed import own_device
from calque.encoders.about import read_about
from calque.encoders.base import Encoder
from calque.encoders.elmo_files import file_pair
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.numerics import few_shapes
from calque.encoders.sentence_transformers import modules_of
from calque.errors import CalqueError, InputError, SettingError

#: what comes with calque, by name
BUNDLED = {"mini": Path(__file__).parent.parent / "data" / "mini"}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_encoder(
    name_or_path: str | PathLike[str],
    *,
    layer: int | None = None,
    pooling: str | None = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    max_length: int | None = None,
    attention: str | None = None,
    precision: str | None = None,
) -> Encoder:
    """Load an encoder.

    Args:
        name_or_path: "mini", the small encoder that comes with calque; a name on the Hugging Face hub, a folder that
            `transformers` or calque saved, an ELMo (a folder with options.json and weights.hdf5, or NAME_weights.hdf5
            beside NAME_options.json), or a file of static word vectors (word2vec or fastText). One for each language:
            "en=elmo-en,de=elmo-de". A folder of one's own that is called mini is "./mini".
        layer: 0 is the embedding output, −1 the last; None for what the folder says, else the last. Of an encoder with
            maps, one that has maps.
        pooling: a word's vector from its subwords: "last", "first" or "mean"; None for what the folder says, else "last".
        dtype: type of the weights, "float32", "bfloat16" or "float16", or "auto" for the one in the file; None for
            float32, whatever the file has. The base of an encoder with maps is loaded in the type that the maps were
            fitted in, and converted where another one is named.
        device: "cpu", "cuda", …; None for a graphics card if there is one, and of several processes for each its own.
        max_length: most subwords of a sentence, special ones included; None for the model's own limit.
        attention: `attn_implementation` of `transformers`, such as "eager" or "sdpa"; None for its own choice.
        precision: of float32 matrix products in `encode`, "highest", "high" or "medium"; None for what the folder says,
            else "highest". See `HuggingFaceEncoder`.

    Raises:
        InputError: nothing can be loaded from there.
        SettingError: an argument that this encoder cannot have.
    """
    name = fspath(name_or_path)
    others = {"pooling": pooling, "dtype": dtype, "device": device, "max_length": max_length,
              "attention": attention, "precision": precision}  # fmt: skip
    if (several := by_language(name)) is not None:
        return _per_language(several, {"layer": layer, **others})
    path = BUNDLED.get(name, Path(name))
    pair = file_pair(path)
    if path.is_file() and pair is None:
        return _static(path, layer=layer, pooling=pooling, precision=precision)
    about = read_about(path)
    if about.get("kind") == "static":
        return _static(path, layer=layer, pooling=pooling, precision=precision)
    mapped = about.get("kind") == "mapped"
    if about.get("base") == "own":
        raise InputError(
            "the encoder under these maps is of a kind of its own: open it by its class, and the maps by "
            "MappedEncoder.open(folder, base)",
            path=path,
        )
    mapped_layer, asked = None, dtype
    if mapped:  # its base is loaded as it was when the maps were fitted
        if pooling is not None:
            raise SettingError("a mapped encoder keeps the pooling that its maps were fitted with")
        mapped_layer, layer = layer, None
        others["dtype"] = dtype = "auto"
    if "elmo" in (about.get("kind"), about.get("base")) or (pair is not None and not (path / "config.json").is_file()):
        what = {
            "pooling": pooling,
            "dtype": None if asked == "auto" else asked,
            "max_length": max_length,
            "attention": attention,
        }
        elmo = _elmo(path, {"layer": layer, "device": _device(device), "precision": precision, "about": about}, what)
        return _mapped(path, elmo, mapped_layer, asked) if mapped else elmo
    if "per-language" in (about.get("kind"), about.get("base")):
        from calque.encoders.per_language import PerLanguage

        base = PerLanguage.open(path, about, load_encoder, layer=layer, **others)
        return _mapped(path, base, mapped_layer, asked) if mapped else base
    if not path.is_dir() and (path.is_absolute() or name.startswith(".") or name.count(os.sep) > 1):
        raise InputError("no such folder", path=path)
    if path.is_dir() and not (path / "config.json").is_file():
        raise InputError(
            "no config.json in this folder, expected an encoder that transformers or calque saved", path=path
        )
    where = fspath(path) if name in BUNDLED else name
    if _dtype(dtype) != torch.float32:
        few_shapes()
    model, tokenizer = _load(where, _dtype(dtype), attention)
    model.to(_device(device))
    try:
        encoder = HuggingFaceEncoder(
            model,
            tokenizer,
            layer=about.get("layer", -1) if layer is None else layer,
            pooling=about.get("pooling", "last") if pooling is None else pooling,  # type: ignore[arg-type]
            max_length=about.get("max_length") if max_length is None else max_length,
            name=path.resolve().name if path.is_dir() else name,
            precision=about.get("precision", "highest") if precision is None else precision,
        )
    except TypeError as error:  # it wants what a text does not have: pixels, a decoder's input
        raise SettingError(f"{type(model).__name__} cannot encode text alone ({_first_line(error)})") from error
    except CalqueError:
        raise
    except Exception as error:  # tokenizer and weights that were not made for each other, or are damaged
        raise InputError(f"tokenizer and weights do not work together ({_first_line(error)})", path=where) from error
    if path.is_dir():
        encoder.modules = modules_of(path)
    return _mapped(path, encoder, mapped_layer, asked) if mapped else encoder


def by_language(name: str) -> dict[str, str] | None:
    """The encoders of `en=elmo-en,de=elmo-de`; None for the name of a single one."""
    paths = dict(name_and_path(part) for part in name.split(","))
    return None if "" in paths or os.path.exists(name) else paths


def _per_language(paths: dict[str, str], options: dict[str, Any]) -> Encoder:
    from calque.encoders.per_language import PerLanguage
    from calque.encoders.static import load_static

    if all(os.path.isfile(path) and file_pair(Path(path)) is None for path in paths.values()):
        if options["layer"] is not None or options["pooling"] is not None:
            raise SettingError("layer and pooling do not apply to static word vectors")
        return load_static(paths)
    return PerLanguage({lang: load_encoder(path, **options) for lang, path in paths.items()})


def _mapped(path: Path, base: Any, layer: int | None, dtype: str | torch.dtype | None) -> Encoder:
    """With all its maps, or those of one layer; its base in another type of number, if one is named."""
    from calque.encoders.mapped import MappedEncoder

    found = MappedEncoder.open(path, base)
    if dtype not in (None, "auto"):  # only now: the maps know their base by its weights as they were
        for each in getattr(base, "encoders", {"": base}).values():
            each.model.to(dtype=_dtype(dtype))
    if layer is None:
        return found
    number = base.layer_number(layer)
    if number not in found.layers:
        raise SettingError(f"layer {layer}: {found.name} has maps of {', '.join(map(str, found.layers))}")
    maps = {lang: {number: of[number]} for lang, of in found.maps.items()}
    return MappedEncoder(base, maps, towards=found.towards, settings=found.settings)


def _elmo(path: Path, given: dict[str, Any], other: dict[str, Any]) -> Encoder:
    from calque.encoders.elmo import ElmoEncoder

    for option, value in other.items():
        if value is not None:
            raise SettingError(f"{option} does not apply to ELMo ({path})")
    return ElmoEncoder.open(path, **{name: value for name, value in given.items() if value is not None})


def _static(path: Path, **given: Any) -> Encoder:
    from calque.encoders.static import load_static

    for option, value in given.items():
        if value is not None:
            raise SettingError(f"{option} does not apply to static word vectors ({path})")
    return load_static(path)


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | str:
    """As PyTorch names it, or "auto"."""
    if isinstance(dtype, torch.dtype) or dtype == "auto":
        return dtype
    if dtype is not None and dtype not in DTYPES:
        raise SettingError(f"dtype={dtype!r}, expected one of {', '.join(DTYPES)} or auto")
    return torch.float32 if dtype is None else DTYPES[dtype]


def _device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return own_device()
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise SettingError(f"device={str(device)!r} cannot be used here ({_first_line(error)})") from error
    return found


def _load(name: str, dtype: torch.dtype | str, attention: str | None):
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

    try:
        with _quiet(local=os.path.isdir(name)):
            where = {"local_files_only": not os.path.isdir(name) and _unconnected()}
            config = AutoConfig.from_pretrained(name, **where)
            _check_size(config, name)
            kind = AutoModel
            if type(config) in AutoModelForTextEncoding._model_mapping:  # of T5 the encoder only
                kind = AutoModelForTextEncoding
            elif config.is_encoder_decoder:
                raise SettingError(
                    f"{name} is an encoder with a decoder ({config.model_type}); of these only T5 models can be used"
                )
            how: dict[str, Any] = {"dtype": dtype, "output_loading_info": True, **where}
            if attention is not None:
                how["attn_implementation"] = attention
            model, report = kind.from_pretrained(name, **how)
            tokenizer = AutoTokenizer.from_pretrained(name, **where)
    except CalqueError:
        raise
    except Exception as error:  # a damaged folder can fail in every library on the way
        if os.path.isdir(name):
            raise InputError(f"not an encoder that transformers can load ({_first_line(error)})", path=name) from error
        raise InputError(
            f"{name!r} is not a local folder, and loading it from the Hugging Face hub failed ({_first_line(error)}); "
            "check the name and the connection, or give a folder"
        ) from error
    _check_tokenizer(tokenizer, model.get_input_embeddings().num_embeddings, name)
    missing = set(report["missing_keys"])
    if pooler := {key for key in missing if key.startswith("pooler.")}:
        model.pooler = None  # untrained: random weights must get neither into the hash nor into what is saved
        missing -= pooler
    if missing:
        raise InputError(
            f"{len(missing)} weights are missing ({min(missing)}, …), expected a whole checkpoint of {config.model_type}",
            path=name,
        )
    return model, tokenizer


# Far beyond every encoder of text; what is built from a damaged number takes half a minute, or all memory.
_MOST = {
    "num_hidden_layers": 1000, "n_layers": 1000, "num_layers": 1000, "hidden_size": 65_536, "dim": 65_536, "d_model": 65_536,
    "embedding_size": 65_536, "intermediate_size": 1 << 20, "vocab_size": 1 << 24, "max_position_embeddings": 1 << 24,
    "num_attention_heads": 4096, "type_vocab_size": 1 << 16,
}  # fmt: skip
_MANY = 64  # weights that one weight of the file may stand for, as where layers share them


def _check_size(config: Any, name: str) -> None:
    """Refuse sizes that no encoder has, or that are far more than the weights in the folder could fill."""
    for option, most in _MOST.items():
        value = getattr(config, option, None)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most):
            raise InputError(
                f"{option} is {value!r:.60}, expected a whole number up to {most:,}", path=Path(name, "config.json")
            )
    width = int(getattr(config, "hidden_size", 0) or 0)
    rows = sum(
        int(getattr(config, of, 0) or 0) for of in ("vocab_size", "max_position_embeddings", "intermediate_size")
    )
    weights = width * (rows + width * int(getattr(config, "num_hidden_layers", 0) or 0))
    files = (
        [path for path in Path(name).glob("*") if path.suffix in (".safetensors", ".bin")]
        if os.path.isdir(name)
        else []
    )
    size = sum(path.stat().st_size for path in files)
    if files and weights > _MANY * max(size, 1 << 20):
        fact = f"promises {weights:,} weights or more, but the files of weights have {size:,} bytes"
        raise InputError(f"{fact}; is it of this encoder?", path=Path(name, "config.json"))


def _unconnected() -> bool:
    """Whether the hub's host has no address here: then its client's half a minute of new attempts is in vain."""
    from huggingface_hub.constants import ENDPOINT

    if getproxies():
        return False
    try:
        socket.getaddrinfo(urlsplit(ENDPOINT).hostname, None)
    except OSError:
        return True
    return False


def _check_tokenizer(tokenizer: Any, rows: int, name: str) -> None:
    """That there is a tokenizer, and that it can be this encoder's."""
    try:
        size, special = len(tokenizer), len(set(tokenizer.all_special_ids))
        largest = max(map(int, tokenizer("").input_ids), default=0)  # special subwords, which every sentence has
    except Exception as error:  # damaged, in whatever way
        raise InputError(f"the tokenizer cannot be used ({_first_line(error)})", path=name) from error
    if size <= special:  # made up by transformers, in want of a file
        raise InputError("there is no tokenizer beside the weights, expected a tokenizer.json", path=name)
    if largest >= rows:
        fact = f"the tokenizer's special subword {largest:,} is beyond the encoder's {rows:,} embeddings"
        raise InputError(f"{fact}: they do not belong together", path=name)


@contextmanager
def _quiet(local: bool) -> Iterator[None]:
    """No reports of `transformers` while loading, as what matters is checked here; no bars but those of a download."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled() and local
    logging.set_verbosity(50)  # critical
    if bars:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
