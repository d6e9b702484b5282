"""What zero-shot transfer could reach at most: the task learnt from text in the languages of its tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calque.errors import SettingError
from calque.tasks.base import Score, Task
from calque.tasks.datasets import Dataset

if TYPE_CHECKING:
    from calque.encoders.base import Encoder


class WithCeilings(Task):
    """A zero-shot task; and for each language of its tests of which there is training text, translated from the source's
    (translate-train) or annotated anew, the same task learnt from that.

    Args:
        task: zero-shot; its scores say how far below their ceiling they are.
        ceilings: one for each language.
    """

    def __init__(self, task: Task, ceilings: Sequence[Task]):
        self.task, self.ceilings = task, list(ceilings)

    @classmethod
    def of(
        cls,
        make: Callable[..., Task],
        train: Sequence[Dataset[Any]],
        tests: Sequence[Dataset[Any]],
        ceiling: Sequence[Dataset[Any]],
        dev: Sequence[Dataset[Any]],
        select: str,
        first: Mapping[str, Any] | None = None,
    ) -> WithCeilings:
        """From annotated texts.

        Args:
            make: makes the task, given training and test texts, `dev` and `select`.
            train, tests, dev: of the zero-shot task.
            ceiling: text in languages of the tests.
            select: what chooses the epoch.
            first: what else the zero-shot task is made with, and the ceilings are not, such as an alignment of the encoder.

        Raises:
            SettingError: there is no test in the language of one of these texts.
        """
        task, ceilings = make(train, tests, dev=dev, select=select, **(first or {})), []
        for lang in dict.fromkeys(each.lang for each in ceiling):
            datasets = {name: [each for each in several if each.lang == lang]
                   for name, several in (("train", ceiling), ("tests", tests), ("dev", dev))}  # fmt: skip
            if not datasets["tests"]:
                langs = ", ".join(dict.fromkeys(each.lang for each in tests))
                raise SettingError(f"--ceiling has text in {lang}, but the tests are in {langs}")
            # Target development text of the zero-shot run is this run's own language.
            ceilings.append(make(**datasets, select="source" if select == "target" else select))
        return cls(task, ceilings)

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """The zero-shot scores first."""
        scores = self.task.evaluate(encoder, progress=progress)
        tops = [score for each in self.ceilings for score in each.evaluate(encoder, progress=progress)]
        above = {_place(score): score.value for score in tops}
        return [
            *(score.about(below_ceiling=round(above[_place(score)] - score.value, 5)) if _place(score) in above else score
              for score in scores),
            *(score.about(protocol="ceiling") for score in tops),
        ]  # fmt: skip


def _place(score: Score) -> tuple[str, str, str]:
    return score.data, score.languages[-1], score.metric
