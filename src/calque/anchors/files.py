"""Files of anchors: calque's format, and that of the published code (Schuster et al. 2019)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import chain
from os import PathLike, fspath
from pathlib import Path

import numpy as np

from calque.anchors.sums import Anchors
from calque.errors import InputError, SettingError
from calque.storage import write_lines, write_text
from calque.vectors import map_arrays, read_rows, write_arrays

FILE = "anchors.safetensors"
_PUBLISHED = re.compile(r"avg_embeds_(-?\d+)\.txt")


def save_anchors(path: str | PathLike[str], anchors: Mapping[int, Anchors]) -> None:
    """Write anchors to a safetensors file with the tensors `counts`, `LAYER.vectors`, `LAYER.variances` and `LAYER.norms`.

    Args:
        path: file, or existing folder for `anchors.safetensors`.
        anchors: anchors by layer, all of the same words.
    """
    if len({(of_layer.words, of_layer.lang) for of_layer in anchors.values()}) != 1:
        raise SettingError("the anchors of all layers must be of the same words in the same language")
    first = next(iter(anchors.values()))
    tensors: dict[str, np.ndarray] = {"counts": first.counts.astype(np.int64)}
    for layer, of_layer in anchors.items():
        tensors[f"{layer}.vectors"] = of_layer.vectors
        for name in ("variances", "norms"):
            if (values := getattr(of_layer, name)) is not None:
                tensors[f"{layer}.{name}"] = np.asarray(values, dtype=np.float64)
    about = {"words": first.words, "lang": first.lang, "layers": list(anchors)}
    write_arrays(_file(path), tensors, {"calque": "anchors", "about": json.dumps(about)})


def open_anchors(path: str | PathLike[str]) -> dict[int, Anchors]:
    """Memory-map a file or folder that `save_anchors` wrote, and return the anchors by layer."""
    where = _file(path)
    arrays, metadata = map_arrays(where)
    try:
        about = json.loads(metadata["about"])
        words, counts = tuple(about["words"]), np.asarray(arrays["counts"])
        anchors = {}
        for layer in about["layers"]:
            parts = [arrays[f"{layer}.vectors"], *(arrays.get(f"{layer}.{name}") for name in ("variances", "norms"))]
            if any(part is not None and len(part) != len(words) for part in (counts, *parts)):
                raise ValueError(f"layer {layer} must have one anchor for each word")
            if not all(np.isfinite(part).all() for part in parts if part is not None):
                raise ValueError(f"layer {layer} contains numbers that are not finite")
            anchors[int(layer)] = Anchors(words, parts[0], counts, about["lang"], parts[1], parts[2])
    except (KeyError, ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise InputError(f"not a file of anchors saved by calque ({error!r})", path=where) from error
    return anchors


def write_avg_embeds(folder: str | PathLike[str], anchors: Mapping[int, Anchors]) -> None:
    """Write the files of the published code: `avg_embeds_{layer}.txt` in word2vec text, and `norms.json`.

    `norms.json` contains the mean norm of all occurrences' vectors as `avg_norm_layer_{layer}`, and the frequency of each
    word, in the order of the text files, as `occurrences`. The published script for BERT uses the order of its vocabulary
    file instead.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    norms: dict[str, object] = {}
    for layer, of_layer in anchors.items():
        if wrong := [word for word in of_layer.words if word.split() != [word]]:
            raise SettingError(f"word2vec text cannot contain empty words and words with spaces, got {wrong[0]!r}")
        rows = zip(of_layer.words, of_layer.vectors, strict=True)
        lines = (f"{word} {' '.join(map(str, vector))}\n" for word, vector in rows)
        head = f"{len(of_layer)} {of_layer.vectors.shape[1]}\n"
        write_lines(path / f"avg_embeds_{layer}.txt", chain([head], lines))
        if of_layer.mean_norm is not None:
            norms[f"avg_norm_layer_{layer}"] = of_layer.mean_norm
        norms["occurrences"] = of_layer.counts.tolist()
    write_text(path / "norms.json", json.dumps(norms) + "\n")


def read_avg_embeds(folder: str | PathLike[str], *, lang: str = "") -> tuple[dict[int, Anchors], dict[int, float]]:
    """Read `avg_embeds_{layer}.txt` and optionally `norms.json` of the published code; these files do not contain `lang`.

    Returns:
        anchors by layer; their counts are 0 if `norms.json` has no occurrences in the same order.
        mean norm of the occurrences' vectors by layer, if `norms.json` has it.

    Raises:
        InputError: a file is missing or malformed.
    """
    path = Path(folder)
    names = ((file, _PUBLISHED.fullmatch(file.name)) for file in path.glob("avg_embeds_*.txt"))
    files = {int(match[1]): file for file, match in names if match}
    if not files:
        raise InputError("no avg_embeds_LAYER.txt in this folder", path=path)
    norms: dict[int, float] = {}
    occurrences = np.zeros(0, dtype=np.int64)
    record_path = path / "norms.json"
    if record_path.exists():
        try:
            record = json.loads(record_path.read_text(encoding="utf-8"))
            norms = {layer: float(record[name]) for layer in files if (name := f"avg_norm_layer_{layer}") in record}
            occurrences = np.array([int(count) for count in record.get("occurrences", [])], dtype=np.int64)
        except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(f"not a record of norms by layer ({error!r})", path=record_path) from error
    anchors = {}
    for layer, file in sorted(files.items()):
        try:
            with open(file, "rb") as lines:
                n, dim = map(int, next(lines, b"").split())
                if n < 0 or dim < 1 or 2 * n * dim > file.stat().st_size:  # each number takes at least two bytes
                    raise ValueError
                words, vectors = read_rows(lines, file, n, dim)
        except OSError as error:
            raise InputError(f"cannot be read ({error})", path=file) from error
        except ValueError:
            fact = "expected the numbers of words and of dimensions, and a file that is large enough for them"
            raise InputError(fact, path=file, line=1) from None
        counts = occurrences.copy() if len(occurrences) == len(words) else np.zeros(len(words), dtype=np.int64)
        anchors[layer] = Anchors(tuple(words), vectors, counts, lang)
    return anchors, norms


def _file(path: str | PathLike[str]) -> str:
    where = Path(path)
    return fspath(where / FILE if where.is_dir() else where)
