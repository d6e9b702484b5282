"""Training loop, sources of vectors, and heads on word vectors."""

from calque.training.loop import Loop, Schedule

__all__ = ["Loop", "Schedule"]
