"""PyTorch operations side by side in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from threading import Barrier
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


class Threads:
    """A pool of threads that share the cores among them; the caller's own has one inside the `with` block.

    Several threads with a small piece of work each are faster than several threads on one small matrix product: nobody
    waits for anybody. PyTorch releases Python's lock inside its operations. The caller's thread must not take several
    cores for its own operations meanwhile: OpenMP's helpers go on spinning after each of them.

    Args:
        count: how many; with 1 there is no pool, and the caller's thread does the work with all the cores it has.
    """

    def __init__(self, count: int):
        self.count = count
        self._pool: ThreadPoolExecutor | None = None
        self._before = torch.get_num_threads()
        if count > 1:
            self._pool = ThreadPoolExecutor(count, thread_name_prefix="calque")
            barrier = Barrier(count)
            cores = max(1, self._before // count)
            for started in [self._pool.submit(_settle, cores, barrier) for _ in range(count)]:
                started.result()
            torch.set_num_threads(self._before)  # what threads started by others begin with was changed, too

    def __enter__(self) -> Threads:
        if self._pool is not None:
            torch.set_num_threads(1)
        return self

    def __exit__(self, *_) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            torch.set_num_threads(self._before)

    @contextmanager
    def all_cores(self) -> Iterator[None]:
        """Lets the caller's thread use the cores that it had, for one large operation."""
        if self._pool is None:
            yield
            return
        torch.set_num_threads(self._before)
        try:
            yield
        finally:
            torch.set_num_threads(1)

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Results in the order of the items."""
        return list(map(work, items) if self._pool is None else self._pool.map(work, items))

    def unordered(self, work: Callable[[T], R], items: dict[int, T]) -> Iterator[tuple[int, R]]:
        """Pairs of an item's number and its result, as they are done."""
        if self._pool is None:
            yield from ((number, work(item)) for number, item in items.items())
            return
        futures = {self._pool.submit(work, item): number for number, item in items.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _settle(cores: int, barrier: Barrier) -> None:
    torch.get_num_threads()  # a thread's first question sets its number anew, so it must come before our setting
    torch.set_num_threads(cores)
    barrier.wait()  # so that no thread of the pool takes two of these calls
