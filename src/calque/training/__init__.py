"""Training loop, sources of word vectors, and supervised training of task heads."""

from calque.training.loop import Loop, Schedule

__all__ = ["Loop", "Schedule"]
