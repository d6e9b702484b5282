"""Folders of sentence-transformers: an encoder, and modules that make one vector of a sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

MODULES_FILE = "modules.json"
_SETTINGS = ("config_sentence_transformers.json", "sentence_bert_config.json")


def modules_of(folder: Path) -> Path | None:
    """The folder, if it is one of sentence-transformers whose encoder stands in it directly."""
    return folder if _modules(folder) else None


def copy_modules(source: Path, target: Path) -> None:
    """Copy what sentence-transformers needs beside the encoder: the list of modules, pooling, normalisation and so on."""
    for name in (MODULES_FILE, *_SETTINGS):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    for module in _modules(source):
        shutil.copytree(source / module, target / module, dirs_exist_ok=True)


def _modules(folder: Path) -> list[str]:
    """Folders of the modules after the encoder; none if this is no such folder, or one laid out in another way."""
    try:
        listed = [str(module["path"]) for module in json.loads((folder / MODULES_FILE).read_text(encoding="utf-8"))]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if not listed or listed[0] not in ("", "."):
        return []
    # A name such as ../../home would copy what is none of the model's.
    return [name for name in listed[1:] if Path(name).name == name and (folder / name).is_dir()]
