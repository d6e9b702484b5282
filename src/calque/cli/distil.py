"""`calque distil`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from calque.cli.checks import output_folder, refuse_unused
from calque.cli.options import SubjectCommand, Tracking, grouped, news, own_options
from calque.errors import SettingError
from calque.runs.settings import DistilSettings


class DistilCommand(SubjectCommand):
    """Command with the settings of `Distillation` as options."""

    hides = ("layer", "max_length", "track_folder", "checkpoint_every", "vectors")

    def subjects(self) -> Mapping[str, str]:
        return {"calque distil": "distil"}

    def types_of(self, subject: str) -> Mapping[str, Any]:
        from calque.alignment.distilled import Distillation
        from calque.runs.study.values import of

        return of(Distillation, "towards", "seed")

    def described_by(self, subject: str) -> list[Any]:
        from calque.alignment.distilled import Distillation

        return [Distillation]


_STATIC = {"batch": 256, "learning_rate": 0.01, "ranking": 0.3}


@grouped
def distil(context: typer.Context, how: DistilSettings, tracking: Tracking) -> None:
    """Teach a sentence encoder other languages.

    The student is trained to give a sentence and its translations the teacher's vector of the sentence. The result is a folder
    that calque and sentence-transformers can load. An interrupted run resumes.
    """
    from calque.runs.distil import distil as run

    output_folder("--out", how.out, [how.teacher, how.student, *(how.train or ()), *(how.text or ())])
    options = own_options(context, how.option)
    if how.static:
        why = "has no effect with --static: the student has no layers"
        refuse_unused(context, dict.fromkeys(("layer", "max_length", "sentence_pooling"), why))
        if of_layers := [name for name in ("freeze", "precision") if name in options]:
            raise SettingError(f"--{of_layers[0]} {why}")
        options = {**_STATIC, **options}
    say = news(how.quiet)
    result = run(how, options=options, progress=not how.quiet, say=say)
    say(f"saved to {result.folder} ({result.record['seconds']['method']:.0f} s)")


distil.command_class = DistilCommand
