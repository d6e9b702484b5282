"""Progress bars on standard error."""

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
    """Return a progress bar as a context manager with `update`, or as an iterator over items.

    Args:
        over: items to iterate over, or the number of items; None if the number is unknown.
        show: whether to show the bar; with several processes, only the first one shows it.
        scaled: whether to abbreviate thousands as k and millions as M.
        leave: whether the bar stays on the screen after it is complete.
    """
    from tqdm import tqdm

    items, total = (None, over) if over is None or isinstance(over, int) else (over, None)
    return tqdm(
        items, total=total, unit=unit, desc=title, disable=not show or launched.number() > 0, initial=initial,
        unit_scale=scaled, leave=leave, mininterval=0.5, dynamic_ncols=True,
    )  # type: ignore[call-overload]  # fmt: skip
