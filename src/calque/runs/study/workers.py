"""Steps done one after the other, or side by side."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

from calque.errors import SettingError
from calque.linking import Say
from calque.runs import sources
from calque.runs.steps import Step, Steps, unique
from calque.storage import locked


class Workers:
    """Does steps, side by side where there are several workers.

    Args:
        steps: where they are kept.
        workers: processes.
        say: takes a line of news.
        track, track_folder: trackers, each step that trains as a run of its own.

    Raises:
        SettingError: fewer than one worker; on entering, others are at work in the same folder.
    """

    def __init__(
        self, steps: Steps, workers: int, say: Say, *, track: Sequence[str] = (), track_folder: str | Path = "tracked"
    ):
        if workers < 1:
            raise SettingError(f"workers must be at least 1, got {workers}")
        self.steps, self.workers, self.say = steps, workers, say
        self._do = partial(_done, steps, tuple(track), str(track_folder)) if track else steps.do
        self._pool: ProcessPoolExecutor | None = None
        self._open = ExitStack()
        self._begun = False

    def __enter__(self) -> Workers:
        self._open.enter_context(locked(self.steps.folder))
        if self.workers > 1:
            cores = max(1, len(os.sched_getaffinity(0)) // self.workers)
            self._pool = ProcessPoolExecutor(
                self.workers, get_context("spawn"), initializer=_begin, initargs=(cores, self.steps.modules)
            )
        return self

    def __exit__(self, *error: Any) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._open.__exit__(*error)

    def __call__(self, title: str, steps: Sequence[Step]) -> None:
        steps = unique(steps)
        left = [step for step in steps if not self.steps.is_done(step)]
        if steps:
            self.say(f"{title}: {len(left)} of {len(steps)} steps to do")
        if left and not self._begun:
            self._begun = True
            if self._pool is None:
                sources.load(self.steps.modules)
            else:  # all of them now: one that begins later would load what has been edited in the meantime
                wait([self._pool.submit(os.getpid) for _ in range(self.workers)])
        done = map(self._do, left) if self._pool is None else self._pool.map(self._do, left)
        for number, (_, step) in enumerate(zip(done, left, strict=True), 1):
            self.say(f"{title}: {number} of {len(left)} done ({step.label or step.kind})")


def _done(steps: Steps, track: Sequence[str], folder: str, step: Step) -> Path:
    """Do a step with its trainings tracked, in whatever process."""
    from calque.training.tracking import tracked

    run = re.sub(r"[^\w.-]+", "-", f"{step.kind} {step.label}").strip("-")
    with tracked(track, run=f"{run}-{step.key[:6]}", folder=folder, expected=False):
        return steps.do(step)


def _begin(cores: int, modules: Sequence[str] = ()) -> None:
    import torch

    torch.set_num_threads(cores)
    Thread(target=_end_with_parent, daemon=True).start()
    sources.load(modules)


def _end_with_parent() -> None:
    """A study that is killed takes its workers with it; a step that was begun is done again."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
