"""Progress bars on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from calque import launched

if TYPE_CHECKING:
    from tqdm import tqdm


def bar(
    over: int | Iterable | None,
    *,
    unit: str,
    title: str | None = None,
    show: bool,
    initial: int = 0,
    scaled: bool = False,
    leave: bool = True,
) -> tqdm:
    """Return a progress bar as a context manager with `update`, or as an iterator over items.

    Args:
        over: items to iterate over, or the number of items; None if the number is unknown.
        show: whether to show the bar; with several processes, only the first one shows it.
        scaled: whether to abbreviate thousands as k and millions as M.
        leave: whether the bar stays on the screen after it is complete.
    """
    from tqdm import tqdm

    items, total = None, None
    if isinstance(over, int):
        total = over
    else:
        items = over
    options: dict[str, Any] = {
        "total": total,
        "unit": unit,
        "desc": title,
        "disable": not show or launched.number() > 0,
        "initial": initial,
        "unit_scale": scaled,
        "leave": leave,
        "mininterval": 0.5,
        "dynamic_ncols": True,
    }
    watch = _WATCH.get()
    return (
        tqdm(items, **options) if watch is None else _watched_bar()(items, watch=watch, **options)
    )


# -- watching the bars -----------------------------------------------------------------------------
#: function that is called with the title of a bar, the number of finished items, and the number of
#: all items
Watch = Callable[[str, int, int | None], None]
_WATCH: ContextVar[Watch | None] = ContextVar("calque_watches_progress", default=None)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Call `watch` at every update of a bar that this thread creates inside the block, even if the
    bar is hidden.

    An exception raised by `watch` ends the work. This cancels work in a background thread.
    """
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def _watched_bar() -> type[Any]:
    """Return a class of bars that report each update. A hidden bar of tqdm does not count its
    items, so this class does.
    """
    from tqdm import tqdm

    class Watched(tqdm):
        def __init__(
            self,
            items: Iterable | None,
            *,
            watch: Watch,
            total: int | None,
            desc: str | None,
            initial: int,
            **options: Any,
        ):
            super().__init__(items, total=total, desc=desc, initial=initial, **options)
            size = len(items) if total is None and isinstance(items, Sized) else total
            self._watch, self._title, self._size, self._done = watch, desc or "", size, initial
            watch(self._title, initial, size)

        def update(self, n: float | None = 1) -> bool | None:
            self._count(int(n or 0))
            return super().update(n)

        def __iter__(self) -> Iterator:
            for item in super().__iter__():
                yield item
                self._count(1)

        def _count(self, n: int) -> None:
            self._done += n
            self._watch(self._title, self._done, self._size)

    return Watched
