"""Read result files as records that contain their file name and line number."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from calque.alignment import METHODS
from calque.analyses.table import ANALYSES
from calque.errors import InputError, similar_path
from calque.runs.compare import NUMBERS, invalid_score
from calque.storage import finished, json_text

_ITEMS = {  # required keys of the items of each analysis: numeric keys, then other keys
    "points": (("x", "y"), ("word", "pair")),
    "examples": ((), ("form", "sentence", "expected", "got")),
}
#: analyses that only older versions wrote; their lines are ignored
FORMER = (
    "correlation",
    "consistency",
    "similarities",
    "subwords",
    "position",
    "senses",
    "data-size",
)
_DEPTH = 3  # maximum depth of the search for run records below the folder of a result file
_NOT_RESULTS = {"training", "steps", "text"}  # names of folders that do not contain results


@dataclass(frozen=True)
class Record:
    """One line of a result file. `source` is `FILE:LINE`, where FILE is a key of `Results.files`.
    `plain` is the line as a
    dictionary: the result of `Score.to_dict` with a few more keys."""

    source: str
    plain: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.plain[name]

    @property
    def file(self) -> str:
        return self.source.rpartition(":")[0]

    @property
    def analysis(self) -> str | None:
        return self.plain.get("analysis")

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.plain.get("settings") or {}

    @property
    def items(self) -> Sequence[Mapping[str, Any]]:
        return self.plain.get("items") or ()

    @property
    def is_of_training(self) -> bool:
        """True if a training run computed the score on its own held-out text; such scores are not
        comparable across methods.
        """
        return self.plain["data"] == f"held out, {self.settings.get('model')}"

    @property
    def pair(self) -> tuple[str, ...]:
        return tuple(self.plain["languages"])


class File(NamedTuple):
    """Number of records, hash and modification time of a result file."""

    records: int
    sha256: str
    modified: str


@dataclass(frozen=True)
class RunRecord:
    """Content of a `calque-run.json`, with its path and its short name in the report."""

    name: str
    path: Path
    plain: Mapping[str, Any]

    @property
    def has_section(self) -> bool:
        """True if the method of the run has its own section in the report."""
        row = METHODS.rows.get(str(self.plain.get("method")))
        return row is not None and bool(row.report)

    @property
    def is_step(self) -> bool:
        """True if the run is a step of a study; the folder name of a step ends with a hash."""
        return re.search(r"(^|[-/])[0-9a-f]{20}\Z", self.name) is not None

    @property
    def file(self) -> str:
        """Name of the record's file, as used in sources."""
        return f"{self.name}/{self.path.name}"

    @property
    def plain_scores(self) -> list[Any]:
        scores = self.plain.get("scores")
        return scores if isinstance(scores, list) else []

    def scores(self) -> list[Record]:
        """Return the scores of the run. The source of a score is its position in the file,
        `FILE:scores/0`.

        Raises:
            InputError: an entry is not a score.
        """
        return [
            _record(plain, f"{self.file}:scores/{number}", self.path, None, f"scores/{number} ")
            for number, plain in enumerate(self.plain_scores)
        ]


@dataclass(frozen=True)
class Results:
    """Content of all result files.

    Attributes:
        records: lines of all files, in order.
        files: result files, keyed by the short names used in `Record.source`.
        runs: records of the runs in the folders of the result files.
        repeated: number of ignored lines that are identical to an earlier line of their file.
        passed_over: names of JSON Lines files that contain no results, such as the losses of a
            training run.
    """

    records: tuple[Record, ...]
    files: Mapping[str, File]
    runs: tuple[RunRecord, ...] = ()
    repeated: int = 0
    passed_over: tuple[str, ...] = ()


def read_results(paths: Sequence[str | os.PathLike[str]]) -> Results:
    """Read result files.

    Args:
        paths: JSON Lines files, or folders, which are searched recursively for `*.jsonl` files with
            results; a folder that contains no such file is read as the folder of a run.

    Raises:
        InputError: a path does not exist, a folder contains no results, or a line is invalid.
    """
    result_files: dict[Path, Path] = {}  # by resolved path, because each file is read once
    folders: dict[Path, None] = {}  # folders without result files
    passed_over: list[str] = []
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"does not exist{similar_path(path)}", path=path)
        candidates = [path] if path.is_file() else _below(path, ".jsonl")
        is_empty = True
        for file in candidates:
            if file == path or _holds_results(file):
                result_files[file.resolve()] = file
                is_empty = False
            else:
                passed_over.append(str(file))
        if is_empty:
            folders[path] = None
    parents = dict.fromkeys(path.parent for path in result_files.values())
    runs = _runs(parents | folders)
    if not result_files and not any(run.has_section for run in runs):
        raise InputError(
            "contains no results; expected results.jsonl from `calque demo` or `calque study`, a "
            "file from `calque evaluate --out`, or an encoder with held-out training scores, such "
            "as a CLCR encoder",
            path=", ".join(map(str, paths)),
        )
    records: list[Record] = []
    files: dict[str, File] = {}
    n_repeated = 0
    for name, path in zip(short_names(list(result_files)), result_files.values(), strict=True):
        lines, n_repeated_lines = _read(path, name)
        records += lines
        n_repeated += n_repeated_lines
        files[name] = _file(path, len(lines))
    for run in runs:
        if run.has_section:
            files[run.file] = _file(run.path, len(run.plain_scores))
    return Results(tuple(records), files, runs, n_repeated, tuple(passed_over))


def _file(path: Path, records: int) -> File:
    modified = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return File(records, hashlib.sha256(path.read_bytes()).hexdigest(), modified)


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest distinct endings of paths, with at least one folder; reports must not
    contain local paths.
    """
    paths = [finished(path) for path in paths]
    for length in range(2, 2 + max((len(path.parts) for path in paths), default=0)):
        names = ["/".join(path.parts[-length:]).lstrip("/") for path in paths]
        if len(set(names)) == len(paths):
            return names
    return [str(path) for path in paths]


def _below(folder: Path, ending: str, max_depth: int | None = None) -> list[Path]:
    """Return the sorted files in a folder and its subfolders; skip hidden folders and, unless
    `max_depth` is set, folders that contain no results.
    """
    skipped = _NOT_RESULTS if max_depth is None else set()
    files: list[Path] = []
    for place, folders, names in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        if depth == max_depth:
            folders.clear()
        # `os.walk` visits the folders that remain in its list, in this order.
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in skipped
        )
        files += [Path(place, name) for name in sorted(names) if name.endswith(ending)]
    return files


def _holds_results(path: Path) -> bool:
    """Return whether the first line of a file looks like a score."""
    try:
        with open(path, encoding="utf-8") as file:
            first = json.loads(next((line for line in file if line.strip()), "null"))
    except (ValueError, RecursionError):
        # The file is corrupt. If it should contain results, reading it reports the error.
        return path.name == "results.jsonl"
    return isinstance(first, dict) and {"task", "metric", "languages"} <= first.keys()


def _parsed(text: str, path: Path, line: int | None = None) -> Any:
    """Parse JSON; raise an `InputError` for lone surrogates, which cannot be written to the
    page.
    """
    try:
        plain = json.loads(text)
        if "\\u" in text:
            json_text(plain, ensure_ascii=False).encode()
        return plain
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not valid JSON ({error})", path=path, line=line) from error


def _read(path: Path, name: str) -> tuple[list[Record], int]:
    """Read a file; return its records and the number of repeated lines."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"is not UTF-8 ({error.reason} at byte {error.start})", path=path
        ) from error
    first_numbers: dict[str, int] = {}  # maps each text to the number of its first line
    n_repeated = 0
    for number, line in enumerate(lines, 1):
        if line in first_numbers:
            n_repeated += 1
        elif line.strip():
            first_numbers[line] = number
    records = [
        _record(_parsed(line, path, number), f"{name}:{number}", path, number)
        for line, number in first_numbers.items()
    ]
    return records, n_repeated


def _record(plain: Any, source: str, path: Path, line: int | None, prefix: str = "") -> Record:
    """Check a line and return its record, with None instead of NaN and infinite numbers."""
    if reason := _unusable(plain):
        raise InputError(f"{prefix}{reason}", path=path, line=line)
    infinite = [
        key
        for key in NUMBERS
        if isinstance(plain.get(key), float) and not math.isfinite(plain[key])
    ]
    return Record(source, plain | dict.fromkeys(infinite))


def _unusable(plain: Any) -> str | None:
    """Return the reason why a line is invalid, or None if it is valid. Later code relies on these
    checks.
    """
    if reason := invalid_score(plain):
        return reason
    analysis = plain.get("analysis")
    if analysis not in (None, *FORMER, *ANALYSES):
        return f"analysis must be one of {', '.join(ANALYSES)}, got {analysis!r}"
    for item in plain.get("items") or ():
        if reason := _unusable_item(item, analysis or ""):
            return reason
    return None


def _unusable_item(item: Any, analysis: str) -> str | None:
    """Return the reason why an item of an analysis is invalid, or None if it is valid."""
    numbers, others = _ITEMS.get(analysis, ((), ()))
    required = [*numbers, *others]
    missing = [name for name in required if not isinstance(item, dict) or name not in item]
    if missing:
        return f"an item of {analysis} has no {', '.join(missing)}"
    for name in numbers:
        if type(item[name]) not in (int, float) or not math.isfinite(item[name]):
            return f"{', '.join(numbers)} of an item of {analysis} must be finite numbers"
    if analysis == "examples":
        answers = item["got"].values() if isinstance(item["got"], dict) else [None]
        if not all(isinstance(answer, dict) for answer in (item["expected"], *answers)):
            return "expected and got of an example must be objects"
    return None


def _runs(folders: Iterable[Path]) -> tuple[RunRecord, ...]:
    """Read every `calque-run.json` in the folders of the result files and up to three levels
    below.
    """
    unique: dict[Path, Path] = {}
    for folder in folders:
        for path in _below(folder, "calque-run.json", max_depth=_DEPTH):
            unique[path.resolve()] = path
    runs = []
    for file_name, path in zip(short_names(list(unique)), unique.values(), strict=True):
        plain = _parsed(path.read_text(encoding="utf-8", errors="replace"), path)
        if isinstance(plain, dict):
            name = file_name.rpartition("/")[0] or path.resolve().parent.name
            runs.append(RunRecord(name, path, plain))
    return tuple(runs)
