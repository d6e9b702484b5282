"""Tasks: encoders into scores."""

from calque.tasks.alignment import WordAlignment, score_links
from calque.tasks.base import Score, Task
from calque.tasks.retrieval import WordRetrieval, retrieve

__all__ = ["Score", "Task", "WordAlignment", "WordRetrieval", "retrieve", "score_links"]
