"""A study: encoders × methods × supervision × tasks in one file, done step by step, every step once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from calque.linking import Say
from calque.runs.steps import Steps
from calque.runs.study.grid import Grid
from calque.runs.study.plan import Study
from calque.runs.study.reading import read_study, tested_on
from calque.runs.study.rows import label_of
from calque.runs.study.tables import tables
from calque.runs.study.work import SCORES, WORK
from calque.runs.study.workers import Workers
from calque.storage import write_text
from calque.training.tracking import check_trackers

__all__ = ["Study", "read_study", "study", "tables"]


def study(
    path: str | Path,
    *,
    workers: int = 1,
    data: str | Path | None = None,
    out: str | Path | None = None,
    tests: Sequence[str] = (),
    track: Sequence[str] = (),
    track_folder: str | Path = "tracked",
    say: Say = lambda line: None,
) -> list[dict[str, Any]]:
    """Do a study, or what is left of it.

    Args:
        path: TOML file, see `Study`.
        workers: processes side by side, which share the cores.
        data, out: folders instead of the study's own.
        tests: further test files of its tasks, `TASK=FILE` or `TASK=LANG=FILE`.
        track: trackers of its trainings, see `calque.training.tracking.Tracking`; every step that trains is a run.
        track_folder: for trackers that write files.
        say: takes a line of news.

    Returns:
        a record for each score: `encoder`, `layer`, `method`, `supervision`, `training_seed`, `task`, and what
        `Score.to_dict` has; encoders go by the study's names. They are in `results.jsonl` of the folder, too.
    """
    check_trackers(track)
    plan = tested_on(read_study(path), tests)
    if data is not None:
        plan = replace(plan, data=str(Path(data).resolve()))
    folder = Path(plan.folder) / plan.out if out is None else Path(out)
    steps = Steps(folder / "steps", WORK)
    grid = Grid(plan, steps)
    with Workers(steps, workers, say, track=track, track_folder=Path(track_folder).resolve()) as do:
        do("pretraining", grid.pretraining)
        do("joining encoders", grid.joining)
        do("preparing", grid.preparing)
        do("aligning", grid.aligning)
        do("evaluating", grid.scoring)
    records = []
    for about, step in grid.scores:
        scores = json.loads((steps.place(step) / SCORES).read_text(encoding="utf-8"))
        records += [_named(score, about) for score in scores]
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    write_text(folder / "results.jsonl", "".join(lines))
    write_text(folder / "results.md", tables(records) + "\n")
    return records


def _named(score: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """A score with the study's names: to the task, the encoder was a folder with a hash for its name."""
    settings = score["settings"]
    if "encoder" in settings:
        settings = {**settings, "encoder": label_of(about)}
    return {**score, **about, "settings": settings}
