"""Does retrieval say how well a task transfers? Results of both, language by language."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from calque.analyses.questions import Finding
from calque.tasks.base import Score

_FEWEST = 3  # languages that a correlation is computed for


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's r; NaN for fewer than two points or where one side does not vary."""
    x, y = (np.asarray(side, dtype=np.float64) - np.mean(side) for side in (x, y)) if len(x) else (x, y)
    scale = math.sqrt(float(x @ x) * float(y @ y)) if len(x) > 1 else 0.0
    return float(np.clip(x @ y / scale, -1.0, 1.0)) if scale > 1e-300 else math.nan


def fisher_interval(r: float, n: int, *, z: float = 1.959963984540054) -> tuple[float, float]:
    """95% interval of a correlation of `n` points: tanh(artanh r ± z / √(n − 3)) (Fisher 1921).

    Languages are few, and a bootstrap over five points knows nothing of a sixth. NaN for fewer than 4.
    """
    if n < 4 or math.isnan(r):
        return math.nan, math.nan
    if abs(r) == 1:
        return r, r
    return tuple(math.tanh(math.atanh(r) + side * z / math.sqrt(n - 3)) for side in (-1, 1))  # type: ignore[return-value]


@dataclass(frozen=True)
class Point:
    """One encoder in one language: what retrieval says and what a task says.

    Attributes:
        encoder, lang: whose.
        task, metric, data: what was learnt, the figure, and its test set.
        retrieval: value of the retrieval score by its metric, `accuracy.all` or `accuracy.unseen`.
        score: value, lower and upper end of the task's score.
        n: texts that the task's score is over.
        source: the language of the training text.
    """

    encoder: str
    lang: str
    task: str
    metric: str
    data: str
    retrieval: Mapping[str, float]
    score: tuple[float, float, float]
    n: int
    source: str


def match(records: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Bring together the retrieval scores and the zero-shot scores of the same encoders and languages.

    An encoder is known by what a study calls it (encoder, method, supervision), else by its name. A record that says the
    same thing again replaces the one before it. Retrieval counts if it is contextual, with all candidates, and between the
    language and one that the task was learnt in; lines of analyses and scores of single kinds of spans are passed over.

    Args:
        records: what `Score.to_dict` gave, perhaps with the keys that studies and `calque demo` add.
    """
    retrieval: dict[tuple[str, frozenset[str]], dict[str, float]] = {}
    scores: dict[tuple[str, str, str, str, str], tuple[Mapping[str, Any], tuple[str, ...]]] = {}
    for record in records:
        settings, langs = record.get("settings") or {}, tuple(record.get("languages") or ())
        metric = str(record.get("metric", ""))
        if record.get("analysis") is not None or record.get("value") is None or len(langs) < 2:
            continue
        name = _encoder(record, settings)
        if metric in ("accuracy.all", "accuracy.unseen") and "source_candidates" in settings:
            if settings.get("contextual", True) and settings.get("candidates", "all") == "all":
                retrieval.setdefault((name, frozenset(langs)), {})[metric] = float(record["value"])
        elif settings.get("protocol", "zero-shot") != "zero-shot" or "realign" in settings:
            continue  # what was realigned in its own run is no longer the encoder whose retrieval was measured
        elif "features" in settings and "." not in metric and langs[-1] not in langs[:-1]:
            key = (name, str(record["task"]), metric, langs[-1], str(record.get("data", "")))
            scores[key] = (record, langs[:-1])
    points = []
    for (name, task, metric, lang, data), (record, sources) in scores.items():
        for source in sources:
            accuracies = retrieval.get((name, frozenset((source, lang))))
            if accuracies:
                score = tuple(math.nan if record.get(k) is None else float(record[k]) for k in ("value", "low", "high"))
                points.append(
                    Point(name, lang, task, metric, data, accuracies, score, int(record.get("n") or 0), source)  # type: ignore[arg-type]
                )
                break
    return points


def _encoder(record: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    parts = [record.get(key) for key in ("encoder", "method", "supervision")]
    named = " ".join(str(part) for part in parts if part)
    return named or str(settings.get("encoder", ""))


def correlation(records: Iterable[Mapping[str, Any]], *, seed: int = 0) -> list[Finding]:
    """Retrieval against zero-shot scores over languages, with Pearson's r (Cao et al. 2020, Fig. 2).

    For each task and figure: a line for each encoder and language, where x is the accuracy of retrieval and the value the
    task's score; a line `pearson-r` for each encoder that has 3 languages; and one for all encoders together (encoder None).
    Retrieval is `accuracy.unseen` where all points of a task have it, else `accuracy.all`; the settings say which.

    Args:
        records: see `match`.
    """
    points, findings = match(records), []
    for task, metric in dict.fromkeys((point.task, point.metric) for point in points):
        mine = [point for point in points if (point.task, point.metric) == (task, metric)]
        kind = "accuracy.unseen" if all("accuracy.unseen" in point.retrieval for point in mine) else "accuracy.all"
        mine = [point for point in mine if kind in point.retrieval]
        about = {"retrieval": kind}
        for point in mine:
            score = Score(task, point.data, (point.source, point.lang), metric, *point.score, point.n, seed, about)
            findings.append(Finding("correlation", point.encoder, score, point.lang, point.retrieval[kind]))
        encoders = list(dict.fromkeys(point.encoder for point in mine))
        for encoder in [*encoders, None] if len(encoders) > 1 else encoders:
            sample = [point for point in mine if encoder in (None, point.encoder)]
            if len(sample) < _FEWEST:
                continue
            x, y = (np.array(side) for side in ([p.retrieval[kind] for p in sample], [p.score[0] for p in sample]))
            r = pearson(x, y)
            slope = float(np.polyfit(x, y, 1)[0]) if not math.isnan(r) else math.nan
            line = {} if math.isnan(r) else {"slope": slope, "intercept": float(y.mean() - slope * x.mean())}
            langs = tuple(dict.fromkeys(point.lang for point in sample))
            score = Score(task, "", langs, "pearson-r", r, *fisher_interval(r, len(sample)), len(sample), seed,
                          {**about, "metric": metric, **line}, False)  # fmt: skip
            findings.append(Finding("correlation", encoder, score))
    return findings
