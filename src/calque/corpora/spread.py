"""Choose evenly spaced items of a text. The first items would be a biased sample: files are often sorted by source or label."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

T = TypeVar("T")

_HELD = 65_536  # number of items that may be held, if it is larger than twice the size of the sample


def spread_over(n: int, size: int | None) -> np.ndarray | None:
    """Return `size` evenly spaced indices below `n`, or None if all items are used."""
    return None if size is None or size >= n else np.arange(size) * n // size


def evenly_spaced(items: Iterable[T], size: int | None, *, held: int = _HELD) -> Iterable[T]:
    """Return `size` evenly spaced items in their order, or all items if there are no more than `size`.

    The items are read once, so they can come from a pipe or a stream whose length is unknown. When as many items are kept
    as may be held, every second item is dropped, and from then on only every second item is added.

    Args:
        items: items of a text, for example lines.
        size: maximum number of items to return; None returns `items` unchanged.
        held: number of items that may be held; at least twice `size` is used. Among fewer items than this, the choice is
            that of `spread_over`. Among more items, the gaps between chosen items differ by at most a factor of two.
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
