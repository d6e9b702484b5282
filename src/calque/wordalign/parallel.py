"""Passes over a text by several threads, with the same result for any number of them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from calque.errors import SettingError

T = TypeVar("T")
SHARDS = 8  # at most; a constant, never the number of threads: sums of floats depend on how they are grouped
CELLS_PER_SHARD = 1 << 19
MOST_COUNTS = 1 << 28  # numbers in all shards, unless there are two


def n_shards(n_cells: int, n_pairs: int = 0) -> int:
    """Parts in which a text of so many cells is worked on; each has counts of its own for so many pairs of types."""
    shards = min(SHARDS, max(1, n_cells // CELLS_PER_SHARD), max(2, MOST_COUNTS // max(1, n_pairs)))
    return 1 << (int(shards).bit_length() - 1)  # as many for each of two or four threads


def deal(sentences: np.ndarray, shards: int) -> list[np.ndarray]:
    """Deal sentences sorted by length to shards like cards: all get the same work."""
    return [np.ascontiguousarray(sentences[k::shards]) for k in range(shards)]


def n_threads(threads: int | None) -> int:
    """Threads to use: as asked, or as many as this process may run on.

    Raises:
        SettingError: fewer than one.
    """
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads < 1:
        raise SettingError(f"threads={threads}, expected 1 or more")
    return threads


def stream(tasks: Iterable[Callable[[], T]], threads: int) -> Iterator[T]:
    """Results of the tasks in their order, as they are wanted; no more than one for each thread is ready beforehand."""
    if threads == 1:
        yield from (task() for task in tasks)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[T]] = deque()
        try:
            for task in tasks:
                ahead.append(pool.submit(task))
                if len(ahead) > threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:  # who wants no more waits for none that has not begun
            for future in ahead:
                future.cancel()


def run(tasks: list[Callable[[], T]], threads: int) -> list[T]:
    """Results of the tasks in their order."""
    if threads == 1 or len(tasks) == 1:
        return [task() for task in tasks]
    with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]
