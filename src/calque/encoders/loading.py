"""Load encoders by name."""

from __future__ import annotations

import os
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch

from calque.corpora.languages import name_and_path
from calque.encoders.base import Encoder, build
from calque.encoders.checkpoint import hub_folder
from calque.encoders.folder import ABOUT_FILE, BUNDLED, ENCODERS, file_pair, open_folder
from calque.errors import SettingError
from calque.named import TRUST_CODE, is_path


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
    **own: Any,
) -> Encoder:
    """Load an encoder.

    Args:
        name_or_path: "mini" (the bundled encoder); a name on the Hugging Face hub; a folder that `transformers` or calque
            saved; a folder of adapters (LoRA); an ELMo (a folder with options.json and weights.hdf5, or NAME_weights.hdf5 with
            NAME_options.json); or a file of static word vectors (word2vec or fastText). "en=elmo-en,de=elmo-de" gives each
            language its encoder. "./mini" is a local folder. "package.module:Class" is a class that needs no arguments.
        layer: layer number; 0 is the embedding output, −1 the last. Default: the saved layer, else the last, or layer
            round(2/3 · L) of a decoder with L layers, whose last layers predict the next token.
        pooling: word vector from subwords, "last", "first" or "mean". Default: the saved pooling, else "last".
        dtype: type of the weights, "float32" (default), "bfloat16", "float16", or "auto" for that of the file. The base of an
            encoder with maps is loaded in the type in which the maps were fitted, and then converted.
        device: "cpu", "cuda", …; default: a GPU if there is one, for each process its own.
        max_length: maximum number of subwords of a sentence including special tokens; default: the model's limit.
        attention: `attn_implementation` of `transformers`, such as "eager" or "sdpa"; None for its default.
        precision: "highest" (exact float32) or "bfloat16", which changes the fingerprint. Default: as saved, else "highest".
        bidirectional: whether subwords of a decoder attend to later ones; default: as saved, else not.
        alike: whether the encoders of several languages must have equal sizes; see `PerLanguage`.
        trust_code: allow the import of classes of other packages that the folder names. Imported classes are always allowed.
        own: arguments of a single kind of encoder, see `ENCODERS`.

    Raises:
        InputError: there is no readable encoder.
        SettingError: the encoder does not support an argument.
    """
    name = fspath(name_or_path)
    options = {"layer": layer, "pooling": pooling, "dtype": dtype, "device": device, "max_length": max_length,
               "attention": attention, "precision": precision, "bidirectional": bidirectional, **own}  # fmt: skip
    given = {option: value for option, value in options.items() if value is not None}
    with TRUST_CODE.given(trust_code):
        if (several := by_language(name)) is not None:
            return _per_language(several, given, alike)
        if is_path(name) and not os.path.exists(name):
            return build(ENCODERS.load(name), given)
        fetched = fetched_folder(name)
        encoder = open_folder(fetched or BUNDLED.get(name, name), alike=alike, **given)
    if fetched is not None:
        encoder.name = name  # the given name instead of the name of a commit
    return encoder


def fetched_folder(name: str | PathLike[str]) -> Path | None:
    """Return the local copy of a hub repository with a `calque.json` for calque to read; None for other names."""
    return None if file_pair(Path(name)) is not None else hub_folder(fspath(name), ABOUT_FILE)


def by_language(name: str) -> dict[str, str] | None:
    """Return the encoder names by language of `en=elmo-en,de=elmo-de`; None for the name of a single encoder."""
    paths = dict(name_and_path(part) for part in name.split(","))
    return None if "" in paths or os.path.exists(name) else paths


def _per_language(paths: dict[str, str], options: dict[str, Any], alike: bool) -> Encoder:
    from calque.encoders.per_language import PerLanguage
    from calque.encoders.static import load_static

    if alike and all(os.path.isfile(path) and file_pair(Path(path)) is None for path in paths.values()):
        of_one_kind = {name for row in ENCODERS.rows.values() for name in row.options}
        if unused := {"layer", "pooling", *of_one_kind} & options.keys():
            raise SettingError(f"{', '.join(sorted(unused))} does not apply to static word vectors")
        return load_static(paths)
    return PerLanguage({lang: load_encoder(path, **options) for lang, path in paths.items()}, alike=alike)
