"""Trained tables as one safetensors file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from os import PathLike, fspath
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from calque.errors import InputError, SettingError
from calque.offsets import offsets_of
from calque.storage import whole
from calque.wordalign.model import Model
from calque.wordalign.vocabulary import Classes, Vocabulary


class Tables(NamedTuple):
    """What a trained aligner consists of; see `WordAligner`."""

    model: Model
    vocabularies: tuple[Vocabulary, Vocabulary]
    langs: tuple[str, str]
    max_words: int


def save_tables(tables: Tables, path: str | PathLike[str]) -> None:
    """Write them."""
    from safetensors.numpy import save_file

    arrays = {f"model.{name}": np.ascontiguousarray(array) for name, array in tables.model.arrays().items()}
    for name, vocabulary in zip(("source", "target"), tables.vocabularies, strict=True):
        for part in ("names", "forms"):
            arrays |= _packed(f"{name}.{part}", getattr(vocabulary, part))
    about = {
        "format": "calque word aligner 1",
        "model": tables.model.kind,
        "langs": list(tables.langs),
        "max_words": tables.max_words,
        "settings": asdict(tables.model.settings),
        "classes": asdict(tables.vocabularies[0].classes),
    }
    # One entry: safetensors writes several in an order that changes from one time to the next.
    record = json.dumps({**about, "digest": _digest(json.dumps(about), arrays)})
    with whole(path) as part:
        save_file(arrays, part, metadata={"calque": record})


def is_aligner(path: str) -> bool:
    """Whether a file says that it is one of `save_tables`; it may be damaged."""
    from safetensors import SafetensorError, safe_open

    if not os.path.isfile(path):
        return False
    try:
        with safe_open(path, framework="numpy") as file:
            return "calque word aligner" in (file.metadata() or {}).get("calque", "")
    except (OSError, SafetensorError):
        return False


def open_tables(path: str | PathLike[str], kinds: Mapping[str, type[Model]]) -> Tables:
    """Read what `save_tables` wrote.

    Args:
        path: the file.
        kinds: the models, by name.

    Raises:
        InputError: the file cannot be read, or holds no word aligner.
    """
    from safetensors import SafetensorError, safe_open

    if os.path.isdir(path):
        raise InputError(
            "is a folder, expected the file of a word aligner, as calque words --tables writes it", path=path
        )
    try:
        with safe_open(fspath(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        # Compiled loops follow these numbers without asking whether they stay in their arrays.
        about = json.loads(metadata["calque"])
        if about.pop("digest") != _digest(json.dumps(about), arrays):
            raise ValueError("its check sum is wrong: the file is damaged; train it again")
        kind = kinds[about["model"]]
        classes = Classes(**about["classes"])
        learnt = {k.removeprefix("model."): v for k, v in arrays.items() if k.startswith("model.")}
        source, target = (
            Vocabulary(_unpacked(f"{name}.names", arrays), _unpacked(f"{name}.forms", arrays), classes)
            for name in ("source", "target")
        )
        model = kind.from_arrays(learnt, kind.settings_of(about["settings"]))
        langs = tuple(about["langs"])
        if len(langs) != 2 or not all(isinstance(lang, str) for lang in langs):
            raise ValueError(f"languages {langs!r:.60}, expected two names")
        return Tables(model, (source, target), (langs[0], langs[1]), about["max_words"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError,
            RecursionError, SettingError) as error:  # fmt: skip
        raise InputError(f"not a word aligner saved by calque ({error})", path=path) from error


def _digest(record: str, arrays: dict[str, np.ndarray]) -> str:
    """Hash of everything in the file."""
    digest = hashlib.blake2b(record.encode("utf-8", "replace"), digest_size=16)
    for name in sorted(arrays):
        digest.update(f"\n{name} {arrays[name].dtype} {arrays[name].shape} ".encode("utf-8", "replace"))
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def _packed(name: str, words: pa.Array) -> dict[str, np.ndarray]:
    text = [word.encode() for word in words.to_pylist()]
    offsets = offsets_of([len(word) for word in text])
    return {f"{name}.bytes": np.frombuffer(b"".join(text), np.uint8), f"{name}.offsets": offsets}


def _unpacked(name: str, arrays: dict[str, np.ndarray]) -> pa.Array:
    offsets = arrays[f"{name}.offsets"]
    large = pa.LargeStringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets.tobytes()), pa.py_buffer(arrays[f"{name}.bytes"].tobytes())
    )
    large.validate(full=True)
    return large.cast(pa.string())
