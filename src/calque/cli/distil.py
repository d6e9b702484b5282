"""`calque distil`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import finite, fraction, given, language, output_folder, positive, refuse_unused
from calque.cli.options import (
    Layer,
    Limit,
    MaxLength,
    Precision,
    Pretokenized,
    Quiet,
    Seed,
    grouped,
    names_of,
    news,
    pairs_of,
)
from calque.cli.tracking import Tracking


@dataclass(frozen=True)
class Learning:
    """Training."""

    loss: Annotated[str, typer.Option(help="Distance to the teacher's vector: mse (squared) or cosine.")] = "mse"
    ranking: Annotated[
        float,
        typer.Option(
            min=0, callback=finite, help="Weight of telling apart: the teacher's vector among those of the whole batch."
        ),
    ] = 0.0
    temperature: Annotated[float, typer.Option(callback=positive, help="Temperature of --ranking.")] = 0.05
    negatives: Annotated[
        int, typer.Option(min=0, help="--ranking: also among N vectors of the teacher drawn from the whole text.")
    ] = 0
    source_share: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            callback=finite,
            help="The student reads the source of so many pairs; below 1 for texts that share their source language.",
        ),
    ] = 1.0
    words: Annotated[
        float,
        typer.Option(
            min=0,
            callback=finite,
            help="Weight of words: a word and its translation learn the vector that the teacher gives the word in its sentence.",
        ),
    ] = 0.0
    epochs: Annotated[float, typer.Option(callback=positive, help="Passes over the longest text.")] = 5.0
    learning_rate: Annotated[
        float | None, typer.Option(callback=positive, help="Peak learning rate; default: by the student's width.")
    ] = None
    warmup: Annotated[float, typer.Option(callback=fraction, help="Share of the updates in which the rate rises.")] = (
        0.1
    )
    batch: Annotated[int, typer.Option(min=1, help="Sentence pairs per language (or lines of --text) and update.")] = 32
    accumulate: Annotated[int, typer.Option(min=1, help="Split each update into N parts, to save memory.")] = 1
    freeze: Annotated[int | None, typer.Option(min=0, help="Freeze the embeddings and the first N layers.")] = None
    precision: Precision = "float32"
    seed: Seed = 0


_STATIC = {"batch": 256, "learning_rate": 0.01, "ranking": 0.3}


@grouped
def distil(
    context: typer.Context,
    teacher: Annotated[str, typer.Option(help="Encoder with a sentence vector: hub name or folder.")],
    student: Annotated[str, typer.Option(help="Encoder of many languages: hub name, folder or mini (bundled).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the trained student.")],
    learning: Learning,
    tracking: Tracking,
    train: Annotated[list[str] | None, typer.Argument(metavar="[TRAIN...]", help="One or more parallel texts.")] = None,
    langs: Annotated[
        list[str] | None,
        typer.Option("--langs", metavar="SOURCE TARGET", help="Languages of a text, e.g. en de; repeatable."),
    ] = None,
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
            "default elsewhere), cls, or several, as in cls,max,mean."
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
    links: Annotated[
        list[str] | None,
        typer.Option(help="Pharaoh file with the word links for --words; default: link as calque words does."),
    ] = None,
    pretokenized: Pretokenized = False,
    layer: Layer = None,
    max_length: MaxLength = None,
    limit: Limit = None,
    checkpoint_every: Annotated[
        int, typer.Option(min=0, help="Also save a checkpoint every N updates (one is saved every minute); 0: none.")
    ] = 200,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished encoder in --out.")] = False,
    quiet: Quiet = False,
) -> None:
    """Teach a sentence encoder other languages.

    The student learns to give a sentence and its translations the vector that the teacher gives the sentence. The result is a
    folder that calque and sentence-transformers can load. A run that was stopped resumes.
    """
    from calque.runs.distil import distil as run

    train, text = train or [], text or []
    output_folder("--out", out, [teacher, student, *train, *text])
    if not learning.words:
        why = "is for words, which --words WEIGHT has learnt, too"
        refuse_unused(context, dict.fromkeys(("links", "pretokenized"), why))
    load = {name: value for name, value in (("layer", layer), ("max_length", max_length)) if value is not None}
    say = news(quiet)
    options = {name: getattr(learning, name) for name in names_of(Learning)}
    if static:
        why = "has no effect with --static: the student has no layers"
        refuse_unused(context, dict.fromkeys(("freeze", "layer", "max_length", "sentence_pooling", "precision"), why))
        refuse_unused(context, {"words": "cannot be had with --static: its words have no context"})
        options |= {name: value for name, value in _STATIC.items() if name not in given(context)}
    result = run(
        train, langs=pairs_of(langs or [], len(train)) if train else [], teacher=teacher, student=student, out=out,
        towards=towards, monolingual=text, pooling=sentence_pooling, teacher_pooling=teacher_pooling, vectors=vectors,
        links=links or [], pretokenized=pretokenized, limit=limit, load=load, options=options, static=static,
        checkpoint_every=checkpoint_every, overwrite=overwrite, progress=not quiet, say=say,
    )  # fmt: skip
    say(f"saved to {result.folder} ({result.record['seconds']['method']:.0f} s)")
