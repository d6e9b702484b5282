"""A study: encoders × methods × supervision × tasks in one file, done step by step, every step once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from calque.runs.steps import Step, Steps
from calque.runs.study.grid import aligning, groups, linking, scoring
from calque.runs.study.plan import BASE, Study
from calque.runs.study.tables import tables
from calque.runs.study.work import WORK
from calque.runs.study.workers import Workers
from calque.runs.texts import Say

__all__ = ["Study", "study", "tables"]


def study(
    path: str | Path,
    *,
    workers: int = 1,
    data: str | Path | None = None,
    out: str | Path | None = None,
    say: Say = lambda line: None,
) -> list[dict[str, Any]]:
    """Do a study, or what is left of it.

    Args:
        path: TOML file, see `Study`.
        workers: processes side by side, which share the cores.
        data, out: folders instead of the study's own.
        say: takes a line of news.

    Returns:
        a record for each score: `encoder`, `method`, `supervision`, `task`, and what `Score.to_dict` has. They are in
        `results.jsonl` of the folder, too.
    """
    plan = Study.read(path)
    if data is not None:
        plan = replace(plan, data=str(Path(data).resolve()))
    folder = Path(plan.folder) / plan.out if out is None else Path(out)
    steps = Steps(folder / "steps", WORK)
    aligned: list[tuple[str, str, str, tuple[str, ...] | None, Step | str]] = []
    links: list[Step] = []
    for encoder, where in plan.encoders.items():
        if BASE in plan.methods:
            aligned.append((encoder, BASE, "", None, where))
        for kind, texts in plan.supervision.items():
            for langs in groups(plan, texts):
                own = [linking(plan, texts, lang) for lang in langs]
                links += own
                for name, settings in plan.methods.items():
                    if name != BASE:
                        step = aligning(plan, steps, where, settings, texts, langs, own)
                        aligned.append((encoder, name, kind, None if plan.together else tuple(langs), step))
    with Workers(steps, workers, say) as do:
        do("linking words", links)
        do("aligning", [step for *_, step in aligned if isinstance(step, Step)])
        scores = [
            ({"encoder": encoder, "method": method, "supervision": kind, "task": name}, step)
            for encoder, method, kind, langs, made in aligned
            for name, settings in plan.tasks.items()
            for step in scoring(plan, steps, made, settings, langs)
        ]
        do("evaluating", [step for _, step in scores])
    records = []
    for about, step in scores:
        found = json.loads((steps.place(step) / "scores.json").read_text(encoding="utf-8"))
        records += [about | score | {"task": about["task"]} for score in found]
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    (folder / "results.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "results.md").write_text(tables(records) + "\n", encoding="utf-8")
    return records
