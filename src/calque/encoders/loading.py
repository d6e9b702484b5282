"""From a name to an encoder."""

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
        name_or_path: "mini", the small encoder that comes with calque; a name on the Hugging Face hub, a folder that
            `transformers` or calque saved, a folder of adapters (LoRA) of such an encoder, an ELMo (a folder with
            options.json and weights.hdf5, or NAME_weights.hdf5 beside NAME_options.json), or a file of static word vectors
            (word2vec or fastText). One for each language: "en=elmo-en,de=elmo-de". A folder of one's own that is called mini is
            "./mini". An encoder of one's own, which needs no arguments, is "package.module:Class".
        layer: 0 is the embedding output, −1 the last; None for what the folder says, else the last, or layer round(2/3 · L) of
            a decoder with L layers, whose last layers predict the next token. Of an encoder with maps, one that has maps.
        pooling: a word's vector from its subwords: "last", "first" or "mean"; None for what the folder says, else "last".
        dtype: type of the weights, "float32", "bfloat16" or "float16", or "auto" for the one in the file; None for
            float32, whatever the file has. The base of an encoder with maps is loaded in the type that the maps were
            fitted in, and converted where another one is named.
        device: "cpu", "cuda", …; None for a graphics card if there is one, and of several processes for each its own.
        max_length: most subwords of a sentence, special ones included; None for the model's own limit.
        attention: `attn_implementation` of `transformers`, such as "eager" or "sdpa"; None for its own choice.
        precision: of the arithmetic in `encode`, "highest" (exact float32) or "bfloat16"; None for what the folder says, else
            "highest".
        bidirectional: of a decoder, whether its subwords attend to those after them, too; None for what the folder says, else
            not. See `HuggingFaceEncoder`.
        alike: whether encoders of several languages must be of the same sizes, also those of one folder; see `PerLanguage`.
        trust_code: import classes outside calque that the folder names, whether it is here or on the hub. Classes that the
            program has imported already need no trust.
        own: arguments that one kind of encoder alone has, see `ENCODERS`.

    Raises:
        InputError: nothing can be loaded from there.
        SettingError: an argument that this encoder cannot have.
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
        encoder.name = name  # not that of a commit
    return encoder


def fetched_folder(name: str | PathLike[str]) -> Path | None:
    """Return where a folder that calque wrote was fetched to, by its name on the hub; None for any other name, or without
    connection.

    `transformers` would read the weights by the name alone, but not which layer, which pooling and which maps calque.json names.
    """
    return None if file_pair(Path(name)) is not None else hub_folder(fspath(name), ABOUT_FILE)


def by_language(name: str) -> dict[str, str] | None:
    """The encoders of `en=elmo-en,de=elmo-de`; None for the name of a single one."""
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
