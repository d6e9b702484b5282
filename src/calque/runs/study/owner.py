"""Record which study file a folder of results belongs to, and keep the scores of rows that were
removed from the study.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from calque.errors import InputError, SettingError
from calque.storage import json_text, read_json_object, write_text

OWNER = "study.json"
_ROW = ("encoder", "layer", "method", "supervision", "training_seed")


def claim(folder: Path, study: Path) -> None:
    """Record in the folder that it contains the results of a study file.

    The path is relative to the folder, so both can be moved together.

    Raises:
        SettingError: the folder contains the results of another study.
        InputError: the file that names the study is corrupt.
    """
    file, study = folder / OWNER, study.resolve()
    if file.is_file():
        named = _owner(file)
        if not _is_same(folder / named, study):
            fact = f"{folder} contains the results of {Path(named).name}, not of {study.name}"
            remedy = "choose another folder with --out, or with `out` in the study file"
            moved = (
                f"if {study.name} is the same study under another name or in another place, delete "
                f"{file}"
            )
            raise SettingError(f"{fact}; {remedy} ({moved})")
    folder.mkdir(parents=True, exist_ok=True)
    relative = os.path.relpath(study, folder.resolve())
    write_text(file, json_text({"study": Path(relative).as_posix()}, ensure_ascii=False) + "\n")


def _owner(file: Path) -> str:
    """Return the path of the study file to which a folder belongs."""
    fact = "calque did not write this file; delete it if the folder belongs to your study"
    named = read_json_object(file, fact).get("study")
    if not isinstance(named, str) or not named:
        raise InputError(f"{fact} (it names no study file)", path=file)
    return named


def _is_same(known: Path, study: Path) -> bool:
    """Return whether two paths refer to the same study. A study file that was moved is recognised
    by its name.
    """
    return os.path.samefile(known, study) if known.exists() else known.name == study.name


# -- scores of removed rows ------------------------------------------------------------------------
def keep_removed(results: Path, records: Iterable[Mapping[str, Any]]) -> tuple[int, Path] | None:
    """Copy a result file to `results.jsonl.1` (or `.2`, …) if it contains scores of rows or tasks
    that are not in `records`.

    Returns:
        number of such scores, and the path of the copy; None if there are none.
    """
    if not results.is_file():
        return None
    text = results.read_text(encoding="utf-8")
    known = {_key(record) for record in records}
    removed = sum(_key(json.loads(line)) not in known for line in text.split("\n") if line.strip())
    if not removed:
        return None
    number = 1
    while (copy := results.with_name(f"{results.name}.{number}")).exists():
        number += 1
    write_text(copy, text)
    return removed, copy


def _key(record: Mapping[str, Any]) -> str:
    """Return a key that identifies a score within a study. It omits the folder of the test data,
    which can change.
    """
    row = [record.get(name) for name in _ROW]
    return json_text(
        [*row, record["task"], record["metric"], record["languages"], Path(record["data"]).name]
    )
