"""Read and write anchors in calque's file format and in the format of the published code (Schuster
et al. 2019).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import chain
from os import PathLike, fspath
from pathlib import Path

import numpy as np

from calque.anchors.sums import Anchors
from calque.errors import InputError, SettingError
from calque.storage import json_text, write_lines, write_text
from calque.vectors import map_arrays, read_rows, write_arrays

FILE = "anchors.safetensors"
_PUBLISHED = re.compile(r"avg_embeds_(-?\d+)\.txt")


def save_anchors(path: str | PathLike[str], anchors: Mapping[int, Anchors]) -> None:
    """Write anchors to a safetensors file with the tensors `counts`, `LAYER.vectors`,
    `LAYER.variances` and `LAYER.norms`.

    Args:
        path: path of the file, or of an existing folder, in which `anchors.safetensors` is written.
        anchors: anchors of each layer, which must all have the same words.
    """
    vocabularies = {(of_layer.words, of_layer.lang) for of_layer in anchors.values()}
    if len(vocabularies) != 1:
        raise SettingError(
            "the anchors of all layers must have the same words and the same language"
        )
    first = next(iter(anchors.values()))
    tensors: dict[str, np.ndarray] = {"counts": first.counts.astype(np.int64)}
    for layer, of_layer in anchors.items():
        tensors[f"{layer}.vectors"] = of_layer.vectors
        if of_layer.variances is not None:
            tensors[f"{layer}.variances"] = np.asarray(of_layer.variances, dtype=np.float64)
        if of_layer.norms is not None:
            tensors[f"{layer}.norms"] = np.asarray(of_layer.norms, dtype=np.float64)
    about = {"words": first.words, "lang": first.lang, "layers": list(anchors)}
    write_arrays(_file(path), tensors, {"calque": "anchors", "about": json_text(about)})


def open_anchors(path: str | PathLike[str]) -> dict[int, Anchors]:
    """Memory-map a file or folder written by `save_anchors`, and return the anchors by layer."""
    where = _file(path)
    arrays, metadata = map_arrays(where)
    try:
        about = json.loads(metadata["about"])
        words, counts = tuple(about["words"]), np.asarray(arrays["counts"])
        if counts.dtype != np.int64:
            raise ValueError(
                f"the counts must be whole numbers (int64), but have the data type {counts.dtype}"
            )
        anchors = {}
        for layer in about["layers"]:
            of_layer = Anchors(
                words,
                arrays[f"{layer}.vectors"],
                counts,
                about["lang"],
                variances=arrays.get(f"{layer}.variances"),
                norms=arrays.get(f"{layer}.norms"),
            )
            _check_layer(layer, of_layer)
            anchors[int(layer)] = of_layer
    except (KeyError, ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise InputError(f"not an anchor file saved by calque ({error!r})", path=where) from error
    return anchors


def _check_layer(layer: int, anchors: Anchors) -> None:
    """Raise a `ValueError` if the arrays of one layer in a file are invalid."""
    optional = (anchors.variances, anchors.norms)
    arrays = [anchors.vectors, *(array for array in optional if array is not None)]
    if any(len(array) != len(anchors.words) for array in (anchors.counts, *arrays)):
        raise ValueError(f"layer {layer} must have exactly one anchor for each word")
    if any(array.dtype.kind != "f" for array in arrays):
        raise ValueError(f"layer {layer} must contain decimal numbers")
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError(f"layer {layer} contains NaN or infinity")


def write_avg_embeds(folder: str | PathLike[str], anchors: Mapping[int, Anchors]) -> None:
    """Write anchors in the format of the published code: `avg_embeds_{layer}.txt` in word2vec text
    format, and `norms.json`.

    In `norms.json`, `avg_norm_layer_{layer}` is the mean norm of the vectors of all occurrences,
    and `occurrences` is the list of word frequencies in the order of the text files. The published
    script for BERT lists the frequencies in the order of its vocabulary file instead.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    norms: dict[str, object] = {}
    for layer, of_layer in anchors.items():
        for word in of_layer.words:
            if word.split() != [word]:
                raise SettingError(
                    f"words in word2vec text files must be non-empty and without spaces, got {word!r}"
                )
        rows = zip(of_layer.words, of_layer.vectors, strict=True)
        lines = (f"{word} {' '.join(map(str, vector))}\n" for word, vector in rows)
        head = f"{len(of_layer)} {of_layer.vectors.shape[1]}\n"
        write_lines(path / f"avg_embeds_{layer}.txt", chain([head], lines))
        if of_layer.mean_norm is not None:
            norms[f"avg_norm_layer_{layer}"] = of_layer.mean_norm
        norms["occurrences"] = of_layer.counts.tolist()
    write_text(path / "norms.json", json_text(norms, undefined="refuse") + "\n")


def read_avg_embeds(
    folder: str | PathLike[str], *, lang: str = ""
) -> tuple[dict[int, Anchors], dict[int, float]]:
    """Read the published code's `avg_embeds_{layer}.txt` and optional `norms.json`, which contain
    no language; set `lang`.

    Returns:
        the anchors by layer, and the mean norms of the layers that have one in `norms.json`. The
        counts of the anchors are 0 unless `occurrences` in `norms.json` contains one number per
        word.

    Raises:
        InputError: a file is missing or malformed.
    """
    path = Path(folder)
    files: dict[int, Path] = {}
    for file in path.glob("avg_embeds_*.txt"):
        match = _PUBLISHED.fullmatch(file.name)
        if match:
            files[int(match[1])] = file
    if not files:
        raise InputError("the folder contains no avg_embeds_LAYER.txt", path=path)
    norms: dict[int, float] = {}
    occurrences = np.zeros(0, dtype=np.int64)
    record_path = path / "norms.json"
    if record_path.exists():
        norms, occurrences = _read_norms(record_path, files)
    anchors = {}
    for layer, file in sorted(files.items()):
        words, vectors = _read_word2vec(file)
        counts = np.zeros(len(words), dtype=np.int64)
        if len(occurrences) == len(words):
            counts = occurrences.copy()
        anchors[layer] = Anchors(tuple(words), vectors, counts, lang)
    return anchors, norms


def _read_norms(path: Path, layers: Iterable[int]) -> tuple[dict[int, float], np.ndarray]:
    """Read `norms.json`, and return the mean norms by layer and the word frequencies."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        norms = {}
        for layer in layers:
            name = f"avg_norm_layer_{layer}"
            if name in record:
                norms[layer] = float(record[name])
        occurrences = [int(count) for count in record.get("occurrences", [])]
        return norms, np.array(occurrences, dtype=np.int64)
    except (
        OSError,
        ValueError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InputError(f"must be a JSON object with mean norms ({error!r})", path=path) from error


def _read_word2vec(file: Path) -> tuple[list[str], np.ndarray]:
    """Read the words and vectors of a file in word2vec text format."""
    try:
        with open(file, "rb") as lines:
            n, dim = map(int, next(lines, b"").split())
            # Each number takes at least two bytes, so a wrong header cannot exhaust the memory.
            if n < 0 or dim < 1 or 2 * n * dim > file.stat().st_size:
                raise ValueError
            words, vectors = read_rows(lines, file, n, dim, limit=n)
            if lines.read(1) or any("\ufffd" in word for word in words):
                raise InputError(f"must contain {n:,} words after the header, in UTF-8", path=file)
    except OSError as error:
        raise InputError(f"cannot be read ({error})", path=file) from error
    except ValueError:
        fact = (
            "must contain the numbers of words and dimensions, and the file must be large enough "
            "for them"
        )
        raise InputError(fact, path=file, line=1) from None
    return words, vectors


def _file(path: str | PathLike[str]) -> str:
    where = Path(path)
    return fspath(where / FILE if where.is_dir() else where)
