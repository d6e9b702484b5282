"""`calque distil`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.checks import output_folder, refuse_unused
from calque.cli.options import SubjectCommand, Tracking, grouped, news, own_options, pairs_of
from calque.errors import SettingError
from calque.runs.settings import (
    CheckpointEvery,
    Layer,
    Limit,
    ManyLangs,
    MaxLength,
    Overwrite,
    OwnOption,
    Quiet,
    Seed,
    language,
)


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
def distil(
    context: typer.Context,
    teacher: Annotated[str, typer.Option(help="Encoder with a sentence vector: hub name or folder.")],
    student: Annotated[str, typer.Option(help="Encoder of many languages: hub name, folder or mini (bundled).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the trained student.")],
    tracking: Tracking,
    train: Annotated[list[str] | None, typer.Argument(metavar="[TRAIN...]", help="One or more parallel texts.")] = None,
    langs: ManyLangs = None,
    towards: Annotated[
        str | None, typer.Option(callback=language, help="The teacher's language; default: the first of --langs.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="FILE...", help="More lines in the teacher's language.")
    ] = None,
    static: Annotated[
        bool,
        typer.Option(
            "--static",
            help="The student is one vector for each subword of --student, without a network; --batch 256, --learning-rate 0.01, "
            "--ranking 0.3, if not given.",
        ),
    ] = False,
    sentence_pooling: Annotated[
        str | None,
        typer.Option(
            help="The student's sentence vector: own (what its folder says; default there), subwords (mean of all subwords; "
            "default elsewhere), or cls."
        ),
    ] = None,
    teacher_pooling: Annotated[
        str | None,
        typer.Option(
            help="The teacher's sentence vector: own (what its folder says; default), subwords, cls or words."
        ),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep the teacher's vectors here for other runs; default: until this one ends."
        ),
    ] = None,
    option: OwnOption = None,
    seed: Seed = 0,
    layer: Layer = None,
    max_length: MaxLength = None,
    limit: Limit = None,
    checkpoint_every: CheckpointEvery = 200,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Teach a sentence encoder other languages.

    The student is trained to give a sentence and its translations the teacher's vector of the sentence. The result is a folder
    that calque and sentence-transformers can load. An interrupted run resumes.
    """
    from calque.runs.distil import distil as run

    train, text = train or [], text or []
    output_folder("--out", out, [teacher, student, *train, *text])
    options = own_options(context, option) | {"seed": seed}
    load = {name: value for name, value in (("layer", layer), ("max_length", max_length)) if value is not None}
    say = news(quiet)
    if static:
        why = "has no effect with --static: the student has no layers"
        refuse_unused(context, dict.fromkeys(("layer", "max_length", "sentence_pooling"), why))
        if of_layers := [name for name in ("freeze", "precision") if name in options]:
            raise SettingError(f"--{of_layers[0]} {why}")
        options = {**_STATIC, **options}
    result = run(
        train, langs=pairs_of(langs or [], len(train)) if train else [], teacher=teacher, student=student, out=out,
        towards=towards, monolingual=text, pooling=sentence_pooling, teacher_pooling=teacher_pooling, vectors=vectors,
        limit=limit, load=load, options=options, static=static, checkpoint_every=checkpoint_every, overwrite=overwrite,
        progress=not quiet, say=say,
    )  # fmt: skip
    say(f"saved to {result.folder} ({result.record['seconds']['method']:.0f} s)")


distil.command_class = DistilCommand
