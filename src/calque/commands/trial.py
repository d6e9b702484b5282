"""The command `calque try`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calque.commands.base import Loading, say_unless
from calque.commands.checks import output_folder
from calque.runs.trial import REPORT, RESULTS, try_alignment
from calque.runs.trial.plan import TrialSettings
from calque.spec import Count, Declared, option
from calque.tasks.table import TASKS, options_of_task, trains_head

if TYPE_CHECKING:
    from calque.runs.trial.verdict import Verdict

#: options of the tasks that the trial sets itself
_SET = ("seeds", "tune", "limit", "test_limit", "layers")


@dataclass(frozen=True, kw_only=True)
class Try(TrialSettings, Loading):
    """Find out whether alignment helps your task.

    The encoder is aligned with parallel text in several training runs. The published and the
    aligned encoders are compared on the task: frozen, frozen with a mixture of all layers, and
    trained on the task. The command prints the answer in one sentence, writes a report, and saves
    the aligned encoder if it is better.
    """

    rare = ("max_length", "bidirectional", "load")

    workers: Count = option(
        1, "Number of parallel processes, which share the CPU cores.", role="run"
    )

    # -- options of a task
    @classmethod
    def subject_in(cls, words: Sequence[str]) -> str | None:
        words = " ".join(words).replace("--task=", "--task ").split()
        if "--task" not in words[:-1]:
            return None
        task = words[words.index("--task") + 1]
        return task if task in TASKS else None

    @classmethod
    def subjects(cls) -> Mapping[str, str]:
        return {f"calque try --task {name}": name for name in TASKS if trains_head(name)}

    @classmethod
    def specific_options(cls, subject: str | None) -> Mapping[str, Declared]:
        if subject is None:
            return {}
        options = options_of_task(subject)
        return {name: declared for name, declared in options.items() if name not in _SET}

    # -- running
    def run(self) -> None:
        inputs = [self.encoder, *self.pairs, *self.train, *self.test, *(self.dev or [])]
        output_folder("--out", self.out, inputs)
        output_folder("--folder", self.place, inputs)
        verdict = try_alignment(
            self,
            load=self.loading(),
            options=self.specific,
            workers=self.workers,
            say=say_unless(self.quiet),
            then=self._add_report,
        )
        for sentence in verdict.sentences:
            print(sentence)
        say = say_unless(self.quiet)
        say(f"report: {self.place / REPORT}")
        if verdict.method is not None:
            say(f"aligned encoder: {self.out}")

    def _add_report(self, folder: Path, verdict: Verdict) -> None:
        from calque.report import report

        report(
            [folder / RESULTS],
            out=folder / REPORT,
            title=f"{Path(self.encoder).name}: does alignment help {TASKS[self.task].title}?",
            lead=verdict.sentences,
        )
