"""Run a study, which combines the encoders, methods, supervision and tasks of a study file, in
cached steps.
"""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

from calque.errors import CalqueWarning, InputError
from calque.input_texts import SKIP_UNUSABLE, Say
from calque.named import TRUST_CODE, imported
from calque.runs.compare import check_results, test_of
from calque.runs.steps import SCORES, Step, Steps, unique
from calque.runs.study.files import check_files
from calque.runs.study.grid import Grid, label_of
from calque.runs.study.owner import claim, keep_removed
from calque.runs.study.recipe import BASE, Study, read_study
from calque.runs.study.work import WORK
from calque.storage import json_text, locked, write_text

RESULTS, TABLES = "results.jsonl", "results.md"
__all__ = ["Study", "read_study", "study"]


def study(
    path: str | Path,
    *,
    workers: int = 1,
    data: str | Path | None = None,
    out: str | Path | None = None,
    say: Say = lambda line: None,
    then: Callable[[Path, list[dict[str, Any]]], object] = lambda folder, records: None,
) -> list[dict[str, Any]]:
    """Run the unfinished steps of a study.

    Arguments not listed here are the options of `calque study`.

    Args:
        path: TOML file that defines the study, see `Study`.
        then: function that is called with the folder and the records at the end, for example to add
            files.

    Returns:
        a record for each score, with `encoder`, `layer`, `method`, `supervision`, `training_seed`,
        `task` and the keys of `Score.to_dict`. Encoders and tasks have the names given in the
        study, and `kind` is calque's name of a task with another name. The records are also written
        to `results.jsonl`.
    """
    plan = read_study(path)
    plan = plan if data is None else replace(plan, data=str(Path(data).resolve()))
    folder = Path(plan.folder) / plan.out if out is None else Path(out)
    check_files(plan, path)
    if (folder / RESULTS).exists():
        check_results(folder / RESULTS)
    elif (folder / TABLES).exists():
        raise InputError(
            "calque did not write this file; choose another folder", path=folder / TABLES
        )
    steps = Steps(folder / "steps", WORK)
    grid = Grid(plan, steps)
    own = plan.own_classes()
    for name in own:  # import the user's classes, because the folders of steps refer to them
        imported(name)
    with working(steps, workers, say, own) as do:
        claim(folder, Path(path))
        for title, phase in grid.phases.items():
            do(title, phase)
        records = list(_records(grid, steps))
        for name in unchanged(records):
            message = (
                f"all scores of {name} are identical to the scores of {BASE}; does the method "
                "change any vector?"
            )
            warnings.warn(CalqueWarning(message), stacklevel=2)
        if (kept := keep_removed(folder / RESULTS, records)) is not None:
            n, copy = kept
            fact = (
                f"{n:,} earlier scores belong to rows or tasks that {Path(path).name} no longer has"
            )
            warnings.warn(
                CalqueWarning(f"{fact}; the earlier results are kept in {copy}"), stacklevel=2
            )
        write_text(
            folder / RESULTS,
            "".join(json_text(each, ensure_ascii=False) + "\n" for each in records),
        )
        then(folder, records)
    return records


def _records(grid: Grid, steps: Steps) -> Iterator[dict[str, Any]]:
    """Yield the scores of all finished steps, with the keys that identify them."""
    for about, step in grid.scores:
        for score in json.loads((steps.place(step) / SCORES).read_text(encoding="utf-8")):
            if (
                "encoder" in score["settings"]
            ):  # replace the folder's name by the encoder's name in the study
                score["settings"]["encoder"] = label_of(about)
            # Scores that an alignment method computes itself belong to no task of the study.
            kind = (
                {"kind": score["task"]} if score["task"] != about.get("task", score["task"]) else {}
            )
            yield {**score, **kind, **about}


def unchanged(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of methods whose scores and resamples are all identical to those of the base
    encoder.
    """
    found: dict[str, set[str]] = {BASE: set()}
    for record in records:
        score = [
            record["encoder"],
            record["layer"],
            *test_of(record),
            record["value"],
            record.get("resamples"),
        ]
        found.setdefault(record["method"], set()).add(json_text(score))
    return [name for name, scores in found.items() if name != BASE and scores <= found[BASE]]


@contextmanager
def working(
    steps: Steps, workers: int, say: Say, own: Sequence[str] = ()
) -> Iterator[Callable[[str, Sequence[Step]], None]]:
    """Yield a function that runs the steps of a phase, in parallel if `workers` exceeds 1. Workers
    import the classes `own`.

    Raises:
        SettingError: another process uses the folder.
    """
    with locked(steps.folder):
        others, pool = active_children(), None
        if workers > 1:
            cores = max(1, len(os.sched_getaffinity(0)) // workers)
            about = (cores, own, bool(TRUST_CODE), bool(SKIP_UNUSABLE))
            pool = ProcessPoolExecutor(workers, get_context("spawn"), begin_worker, about)

        def do(title: str, phase: Sequence[Step]) -> None:
            phase = unique(phase)
            left = [step for step in phase if not steps.is_done(step)]
            if phase:
                say(f"{title}: {len(left)} of {len(phase)} steps to do")
            # Workers start here with SIGINT blocked, so that only this process handles Ctrl-C.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                done = map(steps.do, left) if pool is None else pool.map(steps.do, left)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for number, (_, step) in enumerate(zip(done, left, strict=True), 1):
                say(f"{title}: {number} of {len(left)} done ({step.label or step.kind})")

        try:
            yield do
        except BaseException:
            for worker in active_children() if pool is not None else ():
                if worker not in others:
                    worker.terminate()  # the worker ends immediately or after the current update
            raise
        finally:
            if pool is not None:
                pool.shutdown(cancel_futures=True)


def begin_worker(
    cores: int, own: Sequence[str] = (), trust: bool = False, skip: bool = False
) -> None:
    """Initialise a worker process."""
    import torch

    torch.set_num_threads(cores)
    for permission in (TRUST_CODE.given(trust), SKIP_UNUSABLE.given(skip)):
        permission.__enter__()  # the permission lasts until the process ends
    for name in own:
        imported(name)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when the main process is killed. The next run repeats the worker's step."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
