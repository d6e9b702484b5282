"""Choose evenly spaced items of a text. The first items would be a biased sample: files are often
sorted by source or label.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

T = TypeVar("T")

_HELD = 65_536  # number of items held in memory, or twice the size of the sample if that is larger


def spread_over(n: int, size: int | None) -> np.ndarray | None:
    """Return `size` evenly spaced indices below `n`, or None if all items are used."""
    return None if size is None or size >= n else np.arange(size) * n // size


def evenly_spaced(items: Iterable[T], size: int | None, *, held: int = _HELD) -> Iterable[T]:
    """Return `size` evenly spaced items in their order, or all items if there are no more than
    `size`.

    The items are read once, so they can come from a pipe or a stream whose length is unknown.
    Whenever the number of items in memory reaches its limit, every second one is dropped, and the
    step between added items is doubled.

    Args:
        items: items of a text, for example lines.
        size: maximum number of items to return; None returns `items` unchanged.
        held: maximum number of items in memory; at least twice `size` is used. If there are fewer
            items, the choice is that of `spread_over`. Otherwise, the gaps between chosen items
            differ by at most a factor of two.
    """
    if size is None:
        return items
    if size == 0:
        return []
    most = max(held, 2 * size)
    kept: list[T] = []
    step = 1
    for index, item in enumerate(items):
        if index % step:
            continue
        kept.append(item)
        if len(kept) == most:
            kept, step = kept[::2], 2 * step
    chosen = spread_over(len(kept), size)
    return kept if chosen is None else [kept[k] for k in chosen]
