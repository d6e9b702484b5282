"""Figures that a method has of its own result, on text that it held out, as scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calque.tasks.base import Score
from calque.tasks.bootstrap import measure

if TYPE_CHECKING:
    from calque.alignment.clcr.learning import Judged


def scores_of(judged: Sequence[Judged], *, seed: int = 0) -> list[Score]:
    """A score with its interval over sentences for each figure; those without any sentence are left out."""
    found = []
    for each in judged:
        if not len(each.counts):
            continue
        measured = measure(each.counts, each.statistic)
        found.append(
            Score(
                each.table, f"held out, {each.model}", each.langs, each.metric, *measured.ends, len(each.counts), seed,
                {"model": each.model, "sentences": len(each.counts)}, percent=each.percent, **measured.kept,
            )
        )  # fmt: skip
    return found
