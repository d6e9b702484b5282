"""The one progress bar, on standard error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from calque import launched

if TYPE_CHECKING:
    from tqdm import tqdm


def bar(
    over: int | Iterable | None, *, unit: str, title: str | None = None, show: bool, initial: int = 0,
    scaled: bool = False, leave: bool = True,
) -> tqdm:  # fmt: skip
    """A context manager whose `update` moves the bar on; over things, also an iterator that does.

    Args:
        over: how many there are in all, None where nobody knows; or the things themselves.
        unit: of what is counted.
        show: else nothing is written, and every call is free; of several processes, the first shows its bars.
        scaled: write thousands as k and millions as M.
        leave: the last state stays on the screen.
    """
    from tqdm import tqdm

    items, total = (None, over) if over is None or isinstance(over, int) else (over, None)
    return tqdm(
        items, total=total, unit=unit, desc=title, disable=not show or launched.number() > 0, initial=initial,
        unit_scale=scaled, leave=leave, mininterval=0.5, dynamic_ncols=True,
    )  # type: ignore[call-overload]  # fmt: skip
