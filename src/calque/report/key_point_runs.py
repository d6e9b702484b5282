"""What `calque clcr train` left behind: figures, the curves of its phases, and sentences with what was learnt of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calque.errors import InputError
from calque.report.numbers import Figure, escape_source
from calque.report.provenance import in_words, run_title
from calque.report.reading import Record, RunRecord

_POINTS = 30  # of a curve in a phase; a run has thousands of updates, each of another batch
_DELTA = 0.2
_TASKS = ("distance", "key-points", "order")


@dataclass(frozen=True)
class Phase:
    """A phase of the training.

    Attributes:
        name: what was trained.
        points: first and last update, and the mean of each metric over them.
    """

    name: str
    points: tuple[tuple[tuple[int, int], Mapping[str, Figure]], ...]


@dataclass(frozen=True)
class Example:
    """An entry of a record's `examples`, with its place."""

    plain: Mapping[str, Any]
    source: str

    def __getitem__(self, name: str) -> Any:
        return self.plain[name]

    @property
    def name(self) -> str:
        return f"sentence {self['sentence'] + 1} ({self['lang']})"

    def figure(self, value: float) -> Figure:
        """A probability of the entry."""
        return Figure(value, None, None, "probability", (self.source,), "entry", percent=False)


@dataclass(frozen=True)
class KeyPointRun:
    """A run.

    Attributes:
        label: its name in the report.
        pivot: the pivot language; langs: the others.
        is_step: it is a step of a study.
        delta: above which probability a word is a key point.
        scores: of its own on held-out text.
        curves: phases by language; that of the pivot's encoder all languages have in common.
        sentences: entries with the probabilities of a sentence's words.
        orders: entries with the order of a sentence's key points.
        unusable: entries that have not what is drawn.
    """

    label: str
    pivot: str
    langs: tuple[str, ...]
    is_step: bool
    delta: float
    scores: tuple[Record, ...]
    curves: Mapping[str, tuple[Phase, ...]]
    sentences: tuple[Example, ...]
    orders: tuple[Example, ...]
    unusable: int = 0


def is_of_training(record: Record) -> bool:
    """Whether a line says what the training itself measured on held-out text, as studies write it: of one model of several,
    such as an order by places, and so no answer that methods could be compared by."""
    return record["task"] in _TASKS and record["data"] == f"held out, {record.settings.get('model')}"


def figures_of_training(
    runs: Sequence[KeyPointRun], lines: Sequence[tuple[str, Record]]
) -> list[tuple[str, str, Record]]:
    """Label, model and record of each figure. A study has those of its runs as lines, under the names of its methods.

    Args:
        runs: what was trained.
        lines: of result files with their labels.
    """
    alone = [run for run in runs if not (lines and run.is_step)]
    scored = [*lines, *((run.label, score) for run in alone for score in run.scores)]
    return [(label, str(score.settings["model"]), score) for label, score in scored if is_of_training(score)]


def key_point_runs(runs: Sequence[RunRecord]) -> list[KeyPointRun]:
    """Those of the runs that made encoders of key points.

    Raises:
        InputError: a score is none, or a line of metrics is not JSON; with file and place.
    """
    chosen = [run for run in runs if run.has_key_points]
    return [_run(run, label) for run, label in zip(chosen, _labels(chosen), strict=True)]


def _labels(runs: Sequence[RunRecord]) -> list[str]:
    """Titles of runs; of those with one title, and the settings in which they differ."""
    titles, settings = [run_title(run) for run in runs], [_mapping(run.plain.get("settings")) for run in runs]
    labels = []
    for title, own in zip(titles, settings, strict=True):
        alike = [other for other, its in zip(settings, titles, strict=True) if its == title]
        differ = [name for name in own if any(other.get(name) != own[name] for other in alike)]
        labels.append(", ".join([title, *(f"{name} {in_words(own[name])}" for name in differ)]))
    return labels


def _run(run: RunRecord, label: str) -> KeyPointRun:
    plain, settings = run.plain, _mapping(run.plain.get("settings"))
    pivot, langs = str(plain.get("towards")), tuple(map(str, _mapping(plain.get("pivots"))))
    entries = plain.get("examples")
    examples = [
        Example(entry, escape_source(f"{run.file}:examples/{number}"))
        for number, entry in enumerate(entries if isinstance(entries, list) else [])
    ]
    sentences = tuple(each for each in examples if _is_sentence(each.plain))
    orders = tuple(each for each in examples if _is_order(each.plain))
    delta = settings.get("delta", _DELTA)
    return KeyPointRun(
        label, pivot, langs, run.is_step, float(delta) if _is_number(delta) else _DELTA, tuple(run.scores()),
        {lang: phases for lang in langs if (phases := _phases(run, lang, pivot))}, sentences, orders,
        len(examples) - len(sentences) - len(orders),
    )  # fmt: skip


def _phases(run: RunRecord, lang: str, pivot: str) -> tuple[Phase, ...]:
    """Those in which the vectors of a language or of the pivot moved."""
    encoders = {f"encoder-{each}": f"encoder of {each}" for each in (lang, pivot)}
    names = {f"transform-{lang}": "transforms", **encoders, f"refine-{lang}": "refinement"}
    found = []
    for folder, name in names.items():
        inside = f"training/{folder}/metrics.jsonl"
        path = run.path.parent / inside
        metrics = (f"{lang}-{pivot}", f"{pivot}-{lang}", "temperature")
        if path.is_file() and (points := _points(path, f"{run.name}/{inside}", metrics)):
            found.append(Phase(name, points))
    return tuple(found)


def _points(path: Path, name: str, metrics: Sequence[str]) -> tuple[tuple[tuple[int, int], Mapping[str, Figure]], ...]:
    """The metrics of a phase's updates; means where there are more updates than points."""
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
        if not line.strip():
            continue
        try:
            plain = _mapping(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise InputError(f"is not JSON ({error})", path=path, line=number) from error
        if all(_is_number(plain.get(key)) and math.isfinite(plain[key]) for key in ("step", *metrics)):
            lines.append((number, plain))
    size = max(1, math.ceil(len(lines) / _POINTS))
    found = []
    for start in range(0, len(lines), size):
        window = lines[start : start + size]
        (first, one), (last, other) = window[0], window[-1]
        source, kind = (f"{name}:{first}", "entry") if first == last else (f"{name}:{first}-{last}", "window")
        figures = {
            key: Figure(
                sum(plain[key] for _, plain in window) / len(window), None, None, key, (escape_source(source),), kind,
                percent=False, digits=3,
            )
            for key in metrics
        }  # fmt: skip
        found.append(((int(one["step"]), int(other["step"])), figures))
    return tuple(found)


def _is_sentence(plain: Any) -> bool:
    """Whether an entry has words and, of each, whether it is a pivot and probabilities by the name of a classifier."""
    said = _mapping(_mapping(plain).get("probabilities"))
    return (
        _has_words(plain)
        and bool(said)
        and _is_row(plain.get("pivots"), len(plain["words"]), lambda each: isinstance(each, bool))
        and all(_is_row(values, len(plain["words"]), _is_share) for values in said.values())
    )


def _is_order(plain: Any) -> bool:
    """Whether an entry has words, the place of each, and a matrix at least."""
    if not _has_words(plain) or "probabilities" in plain:
        return False
    n = len(plain["words"])
    given = [plain[name] for name in ("places", "before") if name in plain]
    square = all(_is_row(table, n, lambda row: _is_row(row, n, _is_share)) for table in given)
    ranks = plain.get("ranks")
    return bool(given) and square and _is_row(ranks, n, lambda rank: _is_number(rank) and rank in range(n))


def _has_words(plain: Any) -> bool:
    words = _mapping(plain).get("words")
    named = isinstance(_mapping(plain).get("lang"), str) and isinstance(_mapping(plain).get("sentence"), int)
    return named and isinstance(words, list) and bool(words) and all(isinstance(word, str) for word in words)


def _is_row(values: Any, length: int, fits: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and len(values) == length and all(map(fits, values))


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
