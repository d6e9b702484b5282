"""Tasks that evaluate encoders. Their classes are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calque.named import exported

if TYPE_CHECKING:
    from calque.tasks.alignment import WordAlignment as WordAlignment
    from calque.tasks.alignment import score_links as score_links
    from calque.tasks.base import Score as Score
    from calque.tasks.base import Task as Task
    from calque.tasks.retrieval import WordRetrieval as WordRetrieval
    from calque.tasks.retrieval import retrieve as retrieve
    from calque.tasks.sentences import SentenceRetrieval as SentenceRetrieval

__getattr__ = exported(
    __name__,
    {
        "base": "Score Task",
        "alignment": "WordAlignment score_links",
        "retrieval": "WordRetrieval retrieve",
        "sentences": "SentenceRetrieval",
    },
)
