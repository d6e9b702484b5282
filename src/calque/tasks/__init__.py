"""Tasks: encoders into scores. Loaded on first use, so that the table of tasks is read without them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calque.tasks.alignment import WordAlignment, score_links
    from calque.tasks.base import Score, Task
    from calque.tasks.retrieval import WordRetrieval, retrieve
    from calque.tasks.sentences import SentenceRetrieval

__all__ = ["Score", "SentenceRetrieval", "Task", "WordAlignment", "WordRetrieval", "retrieve", "score_links"]

_PLACES = {
    "Score": "base", "Task": "base", "WordAlignment": "alignment", "WordRetrieval": "retrieval", "retrieve": "retrieval",
    "score_links": "alignment", "SentenceRetrieval": "sentences",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
