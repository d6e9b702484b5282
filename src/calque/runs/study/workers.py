"""Steps done one after the other, or side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import IO

from calque.errors import SettingError
from calque.runs.steps import Step, Steps, unique
from calque.runs.texts import Say


class Workers:
    """Does steps, side by side where there are several workers.

    Raises:
        SettingError: fewer than one worker; on entering, others are at work in the same folder.
    """

    def __init__(self, steps: Steps, workers: int, say: Say):
        if workers < 1:
            raise SettingError(f"workers must be at least 1, got {workers}")
        self.steps, self.workers, self.say = steps, workers, say
        self._pool: ProcessPoolExecutor | None = None
        self._lock: IO[str] | None = None

    def __enter__(self) -> Workers:
        self._lock = _hold(self.steps.folder)
        if self.workers > 1:
            cores = max(1, len(os.sched_getaffinity(0)) // self.workers)
            self._pool = ProcessPoolExecutor(self.workers, get_context("spawn"), initializer=_begin, initargs=(cores,))
        return self

    def __exit__(self, *_) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._lock is not None:
            self._lock.close()

    def __call__(self, title: str, steps: Sequence[Step]) -> None:
        steps = unique(steps)
        left = [step for step in steps if not self.steps.is_done(step)]
        if steps:
            self.say(f"{title}: {len(left)} of {len(steps)} steps to do")
        done = map(self.steps.do, left) if self._pool is None else self._pool.map(self.steps.do, left)
        for number, place in enumerate(done, 1):
            self.say(f"{title}: {number} of {len(left)} ({place.name})")


def _hold(folder: Path) -> IO[str]:
    """A file that is locked as long as it is open, or this process lives: two at work would spoil each other's steps."""
    folder.mkdir(parents=True, exist_ok=True)
    file = open(folder / "lock", "a", encoding="utf-8")  # noqa: SIM115, the caller closes it
    try:
        import fcntl
    except ImportError:  # Windows: nothing keeps them apart
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise SettingError(
            f"another study is at work in {folder.parent}: wait for it, or choose another --out"
        ) from None
    return file


def _begin(cores: int) -> None:
    import torch

    torch.set_num_threads(cores)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A study that is killed takes its workers with it; a step that was begun is done again."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
