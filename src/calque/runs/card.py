"""Add scores to model cards."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.corpora.by_name import name_of, repository_of
from calque.distributed.environment import environment
from calque.encoders.card_blocks import (
    CARD_FILE,
    SCORES_HEADING,
    TABLE_START,
    read_card,
    with_results,
    with_scores,
    write_card_text,
)
from calque.encoders.folder import RUN_FILE, read_run
from calque.errors import InputError
from calque.runs.compare import invalid_score, test_of
from calque.storage import json_text, locked, write_text
from calque.tasks.base import Score
from calque.tasks.bootstrap import measure
from calque.tasks.reporting import ALWAYS_DESCRIPTIVE, Reporting, warnings_of
from calque.tasks.table import FEATURES, hub_task_of, reporting_of, title_of

if TYPE_CHECKING:
    from calque.alignment.base import HeldOutScore

_DIGITS = 4  # decimals of a score in the card


def add_scores(folder: Path, scores: list[dict[str, Any]]) -> None:
    """Add scores, as returned by `Score.to_dict`, to the model card and to `calque-run.json` of an
    encoder.

    A score replaces an earlier score for the same question. In the card, only calque's block of
    scores and its results in the front matter (see `model_index`) are replaced.
    """
    path = folder / RUN_FILE
    with locked(path, wait=True):  # the file is read, changed and written under one lock
        record = read_run(folder) if path.exists() else environment()
        by_question = {_question(score): score for score in recorded_scores(record, path)}
        for score in scores:
            stored = {name: value for name, value in score.items() if name != "resamples"}
            by_question[_question(stored)] = stored
        record["scores"] = list(by_question.values())
        write_text(path, json_text(record, indent=2, default=str, ensure_ascii=False) + "\n")
        card = folder / CARD_FILE
        block = f"{SCORES_HEADING}\n\n{_table(record['scores'])}"
        text = with_scores(read_card(card), block)
        if index := model_index(record["scores"], _model_name(record, folder)):
            text = with_results(text, index)
        write_card_text(card, text)


def recorded_scores(record: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    """Return the scores in the record of an encoder, which `read_run` has read from `path`.

    Raises:
        InputError: a score is invalid.
    """
    scores = record.get("scores") or []
    for number, score in enumerate(scores):
        if reason := invalid_score(score):
            raise InputError(f"scores/{number} {reason}", path=path)
    return scores


def _question(score: dict[str, Any]) -> str:
    """Return a key that is equal for scores of the same question: task, metric, test set and
    defining settings.
    """
    return json_text(
        [*test_of(score), score.get("seed"), _defining(score)], sort_keys=True, default=str
    )


def _defining(score: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that define the question of a score, without those that only describe the
    score.
    """
    stored = score.get("reporting")
    declared = reporting_of(score["task"]) if stored is None else Reporting.from_dict(stored)
    descriptive = {*ALWAYS_DESCRIPTIVE, *(declared or Reporting()).descriptive}
    return {name: value for name, value in _settings(score).items() if name not in descriptive}


def _settings(score: dict[str, Any]) -> dict[str, Any]:
    return score.get("settings") or {}


def _table(scores: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table of scores, with a last column for the settings that distinguish rows
    of the same test.
    """
    head, rule = f"{TABLE_START} value | 95% interval | n |", "|---|---|---|---|---:|---|---:|"
    rows = [_row(score) for score in scores]
    differing = [_shown_settings(_differing(score, scores)) for score in scores]
    if any(differing):
        head, rule = f"{head} settings |", f"{rule}---|"
        rows = [f"{row} {settings} |" for row, settings in zip(rows, differing, strict=True)]
    return "\n".join([head, rule, *rows])


def _row(score: dict[str, Any]) -> str:
    langs = "-".join(score["languages"])
    value = f"{_shown(score['value'])}{_doubts(score)}"
    interval = f"{_shown(score['low'])} – {_shown(score['high'])}".strip(" –")
    n = "" if score.get("n") is None else f"{score['n']:,}"
    cells = (score["task"], score["metric"], score["data"], langs, value, interval, n)
    return f"| {' | '.join(cells)} |"


def _doubts(score: dict[str, Any]) -> str:
    """Return the reasons why a score must not be compared, in parentheses."""
    return "".join(f" ({reason.partition(':')[0]})" for reason in warnings_of(_settings(score)))


def _differing(score: dict[str, Any], scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the settings in which a score differs from another score of the same metric on the
    same test set.
    """
    others = [_defining(other) for other in scores if test_of(other) == test_of(score)]
    differing = {}
    for name, value in _defining(score).items():
        if any(other.get(name) != value for other in others):
            differing[name] = value
    return differing


def _shown_settings(settings: Mapping[str, Any]) -> str:
    """Format settings for a cell of a Markdown table."""
    return ", ".join(f"{name}: {value}" for name, value in settings.items()).replace("|", "\\|")


def _shown(value: float | None) -> str:
    """Format a value; return an empty string if the value is missing."""
    return "" if value is None else f"{value:.{_DIGITS}f}"


# -- results for the hub ---------------------------------------------------------------------------
def model_index(scores: Sequence[dict[str, Any]], name: str) -> str:
    """Return scores as the key `model-index` of a model card's front matter, from which the Hugging
    Face hub shows the results of a model; an empty string if no score has a value.

    The arguments of a metric are the ends of its 95% interval, the number of test items, and the
    settings that distinguish scores of the same test. Values are fractions, as in the card's table.

    Args:
        scores: scores, as returned by `Score.to_dict`.
        name: name of the model.
    """
    from huggingface_hub import EvalResult, ModelCardData

    results = []
    for score in scores:
        if score["value"] is None:
            continue
        task, title = _hub_task(score)
        results.append(
            EvalResult(
                task_type=_line(task),
                task_name=_line(title),
                dataset_type=_dataset_id(score["data"]),
                dataset_name=_line(name_of(score["data"])),
                dataset_config=_line("-".join(score["languages"])) or None,
                dataset_revision=_settings(score).get("dataset_revision"),
                metric_type=_line(score["metric"]),
                metric_name=_line(f"{score['metric']}{_doubts(score)}"),
                metric_value=round(score["value"], _DIGITS),
                metric_args=_arguments(score, scores) or None,
            )
        )
    if not results:
        return ""
    return f"{ModelCardData(model_name=_line(name), eval_results=results)}\n"


def _hub_task(score: dict[str, Any]) -> tuple[str, str]:
    """Return the task type of a score on the hub, and the name of its task."""
    name = score["task"]
    stored = score.get("reporting")
    if stored is None:
        return hub_task_of(name) or FEATURES, title_of(name) or name
    declared = Reporting.from_dict(stored)
    return declared.hub_task or FEATURES, declared.title or name


def _arguments(score: dict[str, Any], scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the interval, the number of items and the distinguishing settings of a score, without
    missing values.
    """
    arguments = {"low": score["low"], "high": score["high"]}
    arguments = {
        end: round(value, _DIGITS) for end, value in arguments.items() if value is not None
    }
    if score.get("n") is not None:
        arguments["n"] = score["n"]
    # YAML has no tuples and no objects of other classes.
    text = json_text(_differing(score, scores), default=str, ensure_ascii=False)
    settings = json.loads(_line(text))
    return {**arguments, **settings}


def _line(text: str) -> str:
    """Return a text with spaces instead of the characters at which some programs end a line of
    YAML, and without lone surrogates, which UTF-8 cannot encode.
    """
    text = re.sub("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", " ", text)
    return text.encode("utf-8", "replace").decode()


def _dataset_id(data: str) -> str:
    """Return the repository of test data on the hub, or the name of a local file in the characters
    that the hub accepts.
    """
    repository = repository_of(data)
    if repository is not None:
        return repository
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name_of(data)).strip("-") or "text"


def _model_name(record: Mapping[str, Any], folder: Path) -> str:
    """Return the name of an encoder in its results: that of the encoder before alignment with the
    method, or that of the folder.
    """
    encoder, method = record.get("encoder"), record.get("method")
    return f"{encoder} ({method})" if encoder and method else folder.resolve().name


# -- scores on held-out text -----------------------------------------------------------------------
def scores_of(held_out: Sequence[HeldOutScore], *, seed: int = 0) -> list[Score]:
    """Return a score with a confidence interval over sentences for each metric that has counts for
    at least one sentence.
    """
    found = []
    for each in held_out:
        if n := len(each.counts):
            found.append(
                measure(each.counts, each.statistic).score(
                    task=each.table,
                    data=f"held out, {each.model}",
                    languages=each.langs,
                    metric=each.metric,
                    n=n,
                    seed=seed,
                    settings={"model": each.model, "sentences": n},
                    percent=each.percent,
                )
            )
    return found
