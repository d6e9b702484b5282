"""Add scores to model cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.distributed.environment import environment
from calque.encoders.card_blocks import (
    CARD_FILE,
    SCORES_HEADING,
    TABLE_START,
    read_card,
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
from calque.tasks.table import reporting_of

if TYPE_CHECKING:
    from calque.alignment.base import HeldOutScore


def add_scores(folder: Path, scores: list[dict[str, Any]]) -> None:
    """Add scores, as returned by `Score.to_dict`, to the model card and to `calque-run.json` of an
    encoder.

    A score replaces an earlier score for the same question. In the card, only calque's block of
    scores is replaced.
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
        write_card_text(card, with_scores(read_card(card), block))


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
    differing = [_differing(score, scores) for score in scores]
    if any(differing):
        head, rule = f"{head} settings |", f"{rule}---|"
        rows = [f"{row} {settings} |" for row, settings in zip(rows, differing, strict=True)]
    return "\n".join([head, rule, *rows])


def _row(score: dict[str, Any]) -> str:
    langs = "-".join(score["languages"])
    value = f"{_shown(score['value'])}{_doubts(score)}"
    interval = f"{_shown(score['low'])} – {_shown(score['high'])}"
    n = "" if score.get("n") is None else f"{score['n']:,}"
    cells = (score["task"], score["metric"], score["data"], langs, value, interval, n)
    return f"| {' | '.join(cells)} |"


def _doubts(score: dict[str, Any]) -> str:
    """Return the reasons why a score must not be compared, in parentheses."""
    return "".join(f" ({reason.partition(':')[0]})" for reason in warnings_of(_settings(score)))


def _differing(score: dict[str, Any], scores: Sequence[dict[str, Any]]) -> str:
    """Return the settings in which a score differs from another score of the same metric on the
    same test set.
    """
    settings = _defining(score)
    others = [_defining(other) for other in scores if test_of(other) == test_of(score)]
    texts = []
    for name, value in settings.items():
        if any(other.get(name) != value for other in others):
            texts.append(f"{name}: {value}")
    return ", ".join(texts).replace("|", "\\|")


def _shown(value: float | None) -> str:
    """Format a value; return an empty string if the value is missing."""
    return "" if value is None else f"{value:.4f}"


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
