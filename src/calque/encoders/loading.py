"""Load encoders from names or paths."""

from __future__ import annotations

import os
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch

from calque.corpora.languages import name_and_path
from calque.encoders.base import Encoder, build
from calque.encoders.folder import (
    ABOUT_FILE,
    ADAPTERS_FILE,
    BUNDLED,
    ENCODERS,
    file_pair,
    open_folder,
)
from calque.encoders.hub_cache import hub_folder
from calque.errors import SettingError
from calque.named import TRUST_CODE, is_path

#: files that are fetched from a hub repository of adapters: the adapters, the tokenizer, and
#: modules of sentence-transformers
_ADAPTER_PARTS = (
    "*.json",
    "adapter_model.*",
    "vocab.txt",
    "merges.txt",
    "*.model",
    "*.spm",
    "[0-9]_*/model.safetensors",
    "[0-9]_*/pytorch_model.bin",
)


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
    bidirectional: bool | None = None,
    alike: bool = True,
    trust_code: bool = False,
    **class_options: Any,
) -> Encoder:
    """Load an encoder from a name or a path.

    Args:
        name_or_path: "mini" (the bundled encoder); a name on the Hugging Face hub; a folder that
            `transformers` or calque saved; a folder of LoRA adapters; an ELMo model (a folder with
            options.json and weights.hdf5, or NAME_weights.hdf5 with NAME_options.json); or a file
            of static word vectors (word2vec or fastText). "en=elmo-en,de=elmo-de" loads one encoder
            per language. "./mini" is a local folder. "package.module:Class" names a class that
            needs no arguments.
        layer: layer number; 0 is the embedding output, −1 the last layer. Default: the saved layer;
            else the last layer, or layer round(2/3 · L) of a decoder with L layers, because a
            decoder's last layers predict the next token.
        pooling: how to pool subword vectors into word vectors: "last", "first" or "mean"; default:
            as saved; else "mean", or "last" for a decoder, because only the last subword of a word
            has read the whole word. `calque.choose_reading` chooses a layer and a pooling by
            parallel text.
        dtype: weight type, "float32" (default), "bfloat16", "float16", or "auto" for the type in
            the file. The base of an encoder with maps is loaded with the weight type that the maps
            were fitted with, and then converted.
        device: "cpu", "cuda", …; default: the GPU of this process, or the CPU if there is no GPU.
        max_length: maximum number of subwords in a sentence, including special tokens; default: the
            model's limit.
        attention: `attn_implementation` of `transformers`, such as "eager" or "sdpa";
            `transformers` chooses it by default.
        precision: "highest" (full float32) or "bfloat16", which changes the fingerprint; default:
            as saved, or "highest".
        bidirectional: whether a decoder's subwords also attend to later subwords; default: the
            saved setting, else false.
        alike: whether the encoders of several languages must have the same dimensions and layers;
            see `PerLanguage`.
        trust_code: whether to import classes of other packages that the folder names. Imported
            classes are always allowed.
        class_options: additional arguments for specific kinds of encoders; see `ENCODERS`.

    Raises:
        InputError: no encoder can be loaded from `name_or_path`.
        SettingError: the encoder does not support an argument.
    """
    name = fspath(name_or_path)
    options = {
        "layer": layer,
        "pooling": pooling,
        "dtype": dtype,
        "device": device,
        "max_length": max_length,
        "attention": attention,
        "precision": precision,
        "bidirectional": bidirectional,
        **class_options,
    }
    options = {option: value for option, value in options.items() if value is not None}
    with TRUST_CODE.given(trust_code):
        names = by_language(name)
        if names is not None:
            return _per_language(names, options, alike)
        if is_path(name) and not os.path.exists(name):
            return build(ENCODERS.load(name), options)
        fetched = fetched_folder(name)
        place = BUNDLED.get(name, name) if fetched is None else fetched
        encoder = open_folder(place, alike=alike, **options)
    if fetched is not None:
        encoder.name = name  # the name of the local folder is only a commit hash
    return encoder


def fetched_folder(name: str | PathLike[str]) -> Path | None:
    """Return the local copy of a hub repository that contains `calque.json` or adapters, or None
    for other names.
    """
    if file_pair(Path(name)) is not None:
        return None
    return hub_folder(fspath(name), ABOUT_FILE) or hub_folder(
        fspath(name), ADAPTERS_FILE, _ADAPTER_PARTS
    )


def by_language(name: str) -> dict[str, str] | None:
    """Parse `en=elmo-en,de=elmo-de` into names of encoders by language; return None for the name of
    a single encoder.
    """
    paths = dict(name_and_path(part) for part in name.split(","))
    return None if "" in paths or os.path.exists(name) else paths


def _per_language(paths: dict[str, str], options: dict[str, Any], alike: bool) -> Encoder:
    from calque.encoders.per_language import PerLanguage
    from calque.encoders.static import load_static

    is_static = all(
        os.path.isfile(path) and file_pair(Path(path)) is None for path in paths.values()
    )
    if alike and is_static:  # one encoder with a table for each language
        wrong = {"layer", "pooling"}
        for row in ENCODERS.rows.values():
            wrong.update(row.options)
        wrong &= options.keys()
        if wrong:
            raise SettingError(f"{', '.join(sorted(wrong))} does not apply to static word vectors")
        return load_static(paths)
    encoders = {lang: load_encoder(path, **options) for lang, path in paths.items()}
    return PerLanguage(encoders, alike=alike)
